"""The comparison with peers: its arithmetic, what its peers are given, and how their processes are stopped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import asking
from benchmarks.peers.catalogue import QUESTIONS, TEXTS, lists, lists_by_length, shares
from benchmarks.peers.outcome import COLUMNS, Row, cpu_line, rotated, table
from benchmarks.peers.peer import MARK, Peer, marked, running, stop
from benchmarks.peers.servers.given import Given, given

FOLDER = Path(__file__).parent.parent.parent / "benchmarks" / "peers"


def row(title: str, speeds: list[float], **more: float) -> Row:
    """Return a service with the same figures for every column, one speed a round."""
    figures = [{"per_s": speed, "p95_ms": 100.0} for speed in speeds]
    return Row(title, [{f"{name}_{key}": each[key] for name in COLUMNS for key in each} | more for each in figures])


def test_every_service_moves_two_places_from_round_to_round() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    assert [rotated(names, round_)[0] for round_ in range(3)] == ["a", "c", "e"]
    assert sorted(rotated(names, 1)) == names


def test_the_table_shows_medians_the_best_in_bold_and_what_failed() -> None:
    rows = [row("Ours", [30, 10, 20], bulk_api_us=1_500.0), row("Other", [15, 16, 14], bulk_failed=1)]
    shown = table(rows, "right", ["60.0 %", "61.0 %"])
    assert "| Ours | **20.0**, 100 ms |" in shown
    assert "| Other | 15.0, 100 ms |" in shown
    assert "| 60.0 % |\n" in shown
    assert shown.endswith("| 61.0 %, 3 failed |")
    assert cpu_line("Ours", rows[0].rounds[0], "text") == "CPU of Ours in µs a text: in bulk API 1,500."


def test_texts_in_bulk_are_sent_once() -> None:
    texts = [[chr(97 + number % 26) * (number + 1)] for number in range(70)]
    for cut, sizes in ((lists, [32, 32, 6]), (lists_by_length, [32, 32, 6]), (shares, [24, 23, 23])):
        assert [len(each) for each in cut(texts, 3)] == sizes
        assert sorted(text for each in cut(texts, 3) for text in each) == sorted(text for (text,) in texts)


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
    named = {peer.environment for peer in (*QUESTIONS, *TEXTS)} - {None}
    assert {path.stem for path in (FOLDER / "requirements").iterdir()} == named
    for path in (FOLDER / "requirements").iterdir():
        lines = path.read_text().splitlines()
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==\S+", line) for line in lines), path
        found = dict(line.removesuffix("+cpu").split("==") for line in lines)
        assert found == found | {name: known for name, known in pinned.items() if name in found}


def peer_of(code: str) -> Peer:
    """Return a peer that runs some Python code."""
    return Peer("fake", "Fake", "", asking.predict, lambda python, _: [[str(python), "-c", code]])


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
    """Say if a process was started for a peer in this folder."""
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
