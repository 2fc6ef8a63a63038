"""The comparison with peers: its arithmetic, what its peers are given, and how their processes are stopped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.outcome import (
    QUESTIONS,
    Measure,
    Outcome,
    Service,
    ahead,
    document,
    mean_exact,
    measure_of,
    rotated,
    table,
)
from benchmarks.peers.peer import MARK, Peer, marked, running, stop
from benchmarks.peers.pictures import draw
from benchmarks.peers.servers.given import Given, given
from corelane.plugins.lab.schema import AnswerCheck, Generator, Machine, Run, Spread, Workload

FOLDER = Path(__file__).parent.parent.parent / "benchmarks" / "peers"


def measures(speeds: list[float], p95_s: float = 0.1, exact: float = 60.0, failed: int = 0) -> list[Measure]:
    """Return the same figures for every shape, one speed a round."""
    return [
        Measure(
            shape=shape.name,
            round=round_,
            place=0,
            questions_per_s=speed,
            p50_s=p95_s / 2,
            p95_s=p95_s,
            questions=100,
            failed=failed,
            checked=100,
            exact=exact,
        )
        for shape in QUESTIONS
        for round_, speed in enumerate(speeds)
    ]


def service(name: str, found: list[Measure]) -> Service:
    return Service(
        name=name, title=name.title(), manner="", licence="MIT", versions={name: "1.0", "torch": "2"}, measures=found
    )


def outcome(*services: Service) -> Outcome:
    length = Spread(count=1, mean=1, p50=1, p90=1, p95=1, p99=1, max=1)
    return Outcome(
        created_at="2026-11-22T12:00:00+00:00",
        rounds=3,
        seconds=8,
        order=[],
        settings={"workers": 2, "threads": 1, "batch": 8, "wait_ms": 2},
        machine=Machine(cpu="a CPU", cores=2, memory_bytes=1, amx=False, kernel="6", python="3.11"),
        workload=Workload(source="squad", hash="ab", questions=2, words=2, tokens=2, context_words=length),
        model={"version": "qa@1", "dtype": "bf16"},
        services=list(services),
    )


def test_every_service_moves_two_places_from_round_to_round() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    assert [rotated(names, round_)[0] for round_ in range(3)] == ["a", "c", "e"]
    assert sorted(rotated(names, 1)) == names


def test_the_table_shows_medians_and_the_best_in_bold() -> None:
    shown = table(outcome(service("corelane", measures([30, 10, 20])), service("other", measures([15, 16, 14]))))
    assert "| Corelane | 1.0 | **20.0** | **100 ms** |" in shown
    assert "| Other | 1.0 | 15.0 | **100 ms** |" in shown
    assert "| 60.0 % | 0 |" in shown
    assert "No peer is ahead" in shown


def test_the_table_says_where_a_peer_is_ahead() -> None:
    ours = service("corelane", measures([30, 31, 32], exact=60))
    close = service("close", measures([31.5, 33, 34], p95_s=0.2, exact=60))
    fast = service("fast", measures([50, 51, 52], p95_s=0.05, exact=61, failed=3))
    said = "\n".join(ahead(outcome(ours, close, fast)))
    assert "At 1 caller **Close** is ahead of Corelane in questions/s: 33.0 against 31.0, within the spread" in said
    assert "At 16 callers **Fast** is ahead of Corelane in questions/s: 51.0 against 31.0." in said
    assert "At 64 callers **Fast** is ahead of Corelane in p95 latency: 50 ms against 100 ms." in said
    assert "**Fast** gave more right answers: 61.0 % against 60.0 %." in said
    assert "**Close** is ahead of Corelane in p95" not in said
    assert "| 61.0 % | 27 |" in table(outcome(ours, close, fast))


def test_right_answers_are_weighed_by_how_many_were_checked() -> None:
    two = measures([1, 1])[:2]
    two[0].exact, two[0].checked, two[1].exact, two[1].checked = 100.0, 30, 0.0, 10
    assert mean_exact(two) == 75.0
    assert mean_exact([]) is None
    one = service("one", two)
    assert one.exact == 75.0
    two[1].is_whole = True
    assert one.exact == 0.0


def test_refused_failed_and_unfinished_requests_count_as_failures() -> None:
    run = Run(
        began_at="",
        measured_s=1,
        requests=10,
        items=10,
        ok=4,
        refused=1,
        failed=2,
        unfinished=3,
        generator=Generator(processes=1, achieved_per_s=1, cpu_s=1, cpu_share=0.5),
        latency=None,
        latency_sent=None,
        requests_per_s=4,
        items_per_s=4,
        tokens_per_s=1,
        answers=AnswerCheck(checked=4, exact=50.0),
    )
    found = measure_of(run, QUESTIONS[0], 2, 1)
    assert (found.failed, found.checked, found.exact, found.p95_s, found.client_cpu_share) == (6, 4, 50.0, None, 0.5)


def test_the_results_are_kept_and_drawn(tmp_path: Path) -> None:
    kept = outcome(service("corelane", measures([30, 31, 32])), service("other", measures([10, 11, 12])))
    assert Outcome.model_validate_json(kept.model_dump_json(by_alias=True)) == kept
    assert "Batches of up to 8" in document(kept)
    draw(kept, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_a_server_reads_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Given(artifact="/a", checkpoint="/c", port=7, workers=2, batch=8, wait_ms=2, folder="/f")
    for name, value in sent.environment().items():
        monkeypatch.setenv(name, value)
    assert given() == sent


def test_the_best_span_is_that_of_trying_every_span() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    from benchmarks.peers.answering import LONGEST, best_span

    words = {"[CLS]": 0, "[SEP]": 1, "q": 2, "w": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    context = " ".join(f"w{index}" for index in range(40))
    window = tokenizer.encode("q", context)
    generator = np.random.default_rng(5)
    for _ in range(20):
        start, end = generator.normal(size=(2, len(window.ids) + 3)).astype(np.float32)
        first, last = 3, len(window.ids) - 1
        spans = [(s, e) for s in range(first, last) for e in range(s, min(s + LONGEST, last))]
        s, e = max(spans, key=lambda span: start[span[0]] + end[span[1]])
        found = best_span(window, start, end, context)
        assert (found.start, found.end) == (window.offsets[s][0], window.offsets[e][1])
        assert found.text == context[found.start : found.end]
        assert found.margin == pytest.approx(start[s] + end[e] - start[0] - end[0], abs=1e-5)


def test_each_environment_has_the_torch_and_the_tokenizers_of_corelane() -> None:
    pinned = dict(
        re.findall(r"^(torch|tokenizers|numpy)==(\S+)$", Path("constraints/cpu.txt").read_text(), re.MULTILINE)
    )
    named = {peer.environment for peer in PEERS} - {None}
    assert {path.stem for path in (FOLDER / "requirements").iterdir()} == named
    for path in (FOLDER / "requirements").iterdir():
        lines = path.read_text().splitlines()
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==\S+", line) for line in lines), path
        assert f"torch=={pinned['torch']}+cpu" in lines
        assert f"tokenizers=={pinned['tokenizers']}" in lines
        assert f"numpy=={pinned['numpy']}" in lines


def peer_of(code: str) -> Peer:
    """Return a peer that runs some Python code."""
    return Peer("fake", "Fake", "", "", "", "", lambda python, _: [[str(python), "-c", code]])


def test_a_peer_is_up_once_its_processes_are_warm_and_leaves_none(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from benchmarks.peers.servers.given import tell_loaded\n"
        "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)\n"
        "tell_loaded()\n"
        "time.sleep(600)\n"
    )
    mine = Given(artifact="", checkpoint="", port=7, workers=1, batch=8, wait_ms=2, folder=str(tmp_path / "fake"))
    with running(peer_of(code), mine) as ready:
        assert ready() == ["http://127.0.0.1:7"]
        pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        inside = [pid for pid in pids if is_of(pid, mine)]
        assert len(inside) == 2
    assert not [pid for pid in inside if is_of(pid, mine)]


def is_of(pid: int, mine: Given) -> bool:
    """Whether a process was started for a peer in this folder."""
    try:
        return f"PEER_FOLDER={mine.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_a_peer_that_ends_by_itself_is_reported_with_its_log(tmp_path: Path) -> None:
    mine = Given(artifact="", checkpoint="", port=7, workers=1, batch=8, wait_ms=2, folder=str(tmp_path / "fake"))
    ends = peer_of("raise SystemExit('no such model')")
    with running(ends, mine) as ready, pytest.raises(RuntimeError, match="no such model"):
        ready()


def test_processes_that_ignore_a_signal_are_killed() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, MARK: "a-mark-of-a-test"}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        assert marked("a-mark-of-a-test") == [process.pid]
        assert stop([process], "a-mark-of-a-test", patience_s=0.1) == [process.pid]
    assert process.returncode != 0
