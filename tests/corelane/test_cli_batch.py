"""``corelane batch``: lines, resuming at any byte, and the whole command against a service of real sockets."""

import csv
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corelane.cli import waiting as waiting_module
from corelane.cli.commands import CommandGroup
from corelane.cli.item_lines import (
    NumberedLine,
    ParsedLine,
    number_lines,
    read_line,
    read_output,
    results_of,
    skip_answered,
    write_line,
)
from corelane.cli.waiting import WaitNotice
from corelane.client import Wait
from corelane.domain.jobs import DEFAULT_TASK, Result
from corelane.errors import InvalidInput, ServiceError, ServiceUnreachable
from corelane.tasks.question_answering.cli.batch import batch
from corelane.tasks.question_answering.wire import Question
from corelane.tasks.registry import TASKS
from corelane.tasks.results import model_result, unanswered_result
from tests.corelane.stand_in import StandIn, answer, problem
from tests.tools.terminal import terminal
from tests.tools.waiting import eventually

QA = TASKS[DEFAULT_TASK]

QUESTIONS = b"\n".join(
    [
        b'{"id": "a", "question": "Who?", "context": "Ada wrote it."}',
        b"",
        b'{"question": "Who?", "context": "Zo\xc3\xab\xe2\x80\xa8wrote it."}\r',
        b"{broken",
        b'{"id": 7, "question": "Nothing?", "context": "Ada wrote it."}',
        b'{"id": "e", "question": " ", "context": "Ada"}',
        b"   ",
        b'{"id": "z", "question": "Who?", "context": "\\u2028 \\ud83d\\ude00 done"}',
    ]
)

CSV_QUESTIONS = (
    'id,question,context\r\na,Who?,"Ada, and others"\r\n,"Who\n?","Zoë""s\nbook"\n\nc,,nothing\n'
    'd,Nothing?,"Ada\nwrote"\n"e\nf",Nothing?,x\n'
).encode()

#: The command as a program; with Ctrl-C as a terminal has it, even where the tests run in a background that ignores it.
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from corelane.cli.app import make_cli; make_cli()(['batch', *__import__('sys').argv[1:]])"
)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(QUESTIONS)
    return path


def run(*arguments: object) -> tuple[int, str]:
    app = CommandGroup()
    app.command()(batch)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


def read(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def write_questions(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"id":"{n}","question":"Who?","context":"w{n} x"}}\n' for n in range(count)))
    return path


def locally(items: Iterable[Any]) -> Generator[Result, None, None]:
    for index, item in enumerate(list(items)):
        found = unanswered_result(DEFAULT_TASK, index, item.id, "succeeded")  # type: ignore[arg-type]
        yield model_result(found | {"no_answer_score": len(item.context or "") / 100}, "words@1")


def resume(written: bytes, text: bytes) -> bytes:
    """Return the content, after a run, of an output that holds ``written``."""
    kept = read_output(io.BytesIO(written))
    lines = number_lines(io.BytesIO(text))
    skip_answered(QA, lines, kept)
    answers = results_of(QA, map(partial(read_line, QA), lines), locally)
    return written[: kept.size_bytes] + b"".join(write_line(result.model_dump(mode="json")) for result in answers)


def test_an_output_cut_at_any_byte_is_resumed_to_the_same_end() -> None:
    whole = resume(b"", QUESTIONS)
    assert whole.count(b"\n") == 6
    for cut in range(len(whole) + 1):
        assert resume(whole[:cut], QUESTIONS) == whole, cut


@pytest.mark.parametrize(
    "foreign",
    [
        b"notes",
        b"# Title\nmore\n",
        b"{}\n",
        b'{"index": 3}\n',
        b"[1]\n",
        b'{"index":"x","id":null,"status":"y","answer":1}\n',
        b'{"index":1,"id":null,"status":"y","answer":1}\n' * 2,
    ],
)
def test_a_file_that_is_not_an_output_is_refused_not_cut(foreign: bytes) -> None:
    with pytest.raises(InvalidInput, match="--overwrite"):
        read_output(io.BytesIO(foreign))


@pytest.mark.parametrize(
    "other",
    [
        QUESTIONS.replace(b'"z"', b'"y"'),
        QUESTIONS.rpartition(b"\n")[0],
        b"\n" + QUESTIONS,
        QUESTIONS.replace(b"{broken\n", b"\n"),
        b"",
    ],
)
def test_an_output_of_other_questions_is_refused(other: bytes) -> None:
    kept = read_output(io.BytesIO(resume(b"", QUESTIONS)))
    with pytest.raises(InvalidInput, match="is not of line 6 of this input"):
        skip_answered(QA, number_lines(io.BytesIO(other)), kept)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "line 3 is not JSON"),
        (b"\xff", "line 3 is not JSON"),
        (b'{"question": "\\ud800", "context": "c"}', "line 3 is not JSON"),
        (b"[1]", "line 3 is not a JSON object"),
        (b"null", "line 3 is not a JSON object"),
        (b'{"question": "q"}', "line 3: give a `context`"),
        (b'{"question": 5, "context": "c"}', "line 3: question: a text is wanted"),
        (b'{"question": "q", "context": "c", "id": true}', "line 3: id: a text is wanted"),
        (b'{"question": " ", "context": "c"}', "line 3: question: must hold more than white space"),
        (b'{"question": "", "context": "c"}', "line 3: question: at least 1 character is wanted"),
        (b'{"question": "q", "context": "c", "id": "%s"}' % (b"x" * 257), "line 3: id: at most 256 characters"),
        (b'{"question": "q", "context": null}', "line 3: give a `context`"),
        (b'{"question": "q", "context": "c", "contxt": 1}', "line 3: contxt: there is no such field"),
        (b'{"question": "q", "context_id": "mine"}', "line 3: there is no 'mine' in the job's `contexts`"),
    ],
)
def test_a_line_that_cannot_be_asked_says_why(text: bytes, problem: str) -> None:
    line = read_line(QA, NumberedLine(2, text))
    assert line.item is None
    assert line.problem.startswith(problem)


@pytest.mark.parametrize("fault", [b"", b', "context": null', b', "context": "c", "more": 1', b', "context_id": "x"'])
@pytest.mark.parametrize(("given", "kept"), [(b'"a"', "a"), (b"7", "7")])
def test_a_line_that_cannot_be_asked_keeps_its_id(fault: bytes, given: bytes, kept: str) -> None:
    line = read_line(QA, NumberedLine(0, b'{"id": %s, "question": "Who?"%s}' % (given, fault)))
    assert (line.item, line.id) == (None, kept)


@given(st.binary(max_size=80))
def test_any_bytes_can_be_read_as_a_line(text: bytes) -> None:
    line = read_line(QA, NumberedLine(0, text))
    assert (line.item is None) == bool(line.problem)


def test_a_byte_order_mark_carriage_returns_and_blank_lines_do_no_harm() -> None:
    text = b'\xef\xbb\xbf{"question":"q","context":"c"}\r\n\r\n \n{"question":"r","context":"c"}'
    lines = [read_line(QA, raw) for raw in number_lines(io.BytesIO(text))]
    assert [(line.index, line.item and line.item.model_dump()["question"]) for line in lines] == [(0, "q"), (3, "r")]


@given(st.lists(st.booleans(), max_size=30))
def test_lines_that_cannot_be_asked_keep_their_place(good: list[bool]) -> None:
    item = Question(question="q", context="c")
    lines = [ParsedLine(n, f"id{n}", item if ok else None, "" if ok else "bad") for n, ok in enumerate(good)]
    answered = list(results_of(QA, iter(lines), locally))
    assert [(result.index, result.id) for result in answered] == [(n, f"id{n}") for n in range(len(good))]
    assert [result.error is None for result in answered] == good


def test_questions_are_answered_in_order_and_bad_lines_fail_in_place(
    service: StandIn, questions: Path, tmp_path: Path
) -> None:
    output = tmp_path / "answers.jsonl"
    code, said = run(questions, "-o", output, "--url", service.url, "--top-k", "3", "--always-answer")
    assert code == 2
    counts = "6 lines: 3 answered, 1 without an answer, 2 failed"
    assert counts in said
    assert counts in run(questions, "-o", output, "--url", service.url, "--top-k", "3", "--always-answer")[1]
    results = read(output)
    assert [(result["index"], result["id"], result["status"]) for result in results] == [
        (0, "a", "succeeded"),
        (2, None, "succeeded"),
        (3, None, "failed"),
        (4, "7", "succeeded"),
        (5, "e", "failed"),
        (7, "z", "succeeded"),
    ]
    assert [result["model"] for result in results] == ["words@1", "words@1", None, "words@1", None, "words@1"]
    assert results[2]["error"]["code"] == "invalid_input"
    assert results[2]["error"]["detail"].startswith("line 4 is not JSON")
    assert service.bodies[0]["options"] == {"top_k": 3, "no_answer": False}
    assert len(service.bodies[0]["items"]) == 4


def test_every_call_of_a_batch_carries_its_key_and_every_job_its_priority(
    service: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 1200), tmp_path / "a.jsonl"
    monkeypatch.setenv("CORELANE_API_KEY", "key-1")
    given = ["--url", service.url, "--priority", "low"]
    assert run(questions, "-o", output, *given)[0] == 0
    assert set(service.keys) == {"Bearer key-1"}
    assert [body["priority"] for body in service.bodies] == ["low", "low"]
    assert run(questions, "-o", output, "--url", service.url, "--priority", "soon")[0] == 2


def test_a_finished_output_is_left_alone_and_nothing_is_asked(service: StandIn, tmp_path: Path) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 5), tmp_path / "a.jsonl"
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    before = output.read_bytes()
    service.requests.clear()
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    assert (output.read_bytes(), service.requests) == (before, [])


def test_a_service_that_is_not_there_is_reported_at_once(questions: Path, tmp_path: Path) -> None:
    code, said = run(questions, "-o", tmp_path / "a.jsonl", "--url", "http://127.0.0.1:9")
    assert code == 1
    assert "start one with `corelane serve`" in said


def test_an_error_keeps_what_is_answered_and_says_how_to_go_on(service: StandIn, tmp_path: Path) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 1500), tmp_path / "a.jsonl"
    stop = after_results(service, 1)
    code, said = run(questions, "-o", output, "--url", service.url, "--jobs", "1")
    assert code == 1
    assert "to resume: run the same command again, without --overwrite" in said
    assert 0 < len(read(output)) < 1500
    stop()
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    assert [result["index"] for result in read(output)] == list(range(1500))


def after_results(service: StandIn, pages: int) -> Callable[[], None]:
    """Let the service refuse all that comes after some pages of results; what is returned ends that."""
    usual = service.page

    def page(job: dict[str, Any], after: int, limit: int) -> dict[str, Any]:
        if len([request for request in service.requests if "/results" in request]) > pages:
            raise RuntimeError("the service broke")
        return usual(job, after, limit)

    service.page = page  # type: ignore[method-assign]
    return lambda: setattr(service, "page", usual)


def test_the_questions_are_never_overwritten_by_the_output(service: StandIn, questions: Path) -> None:
    code, said = run(questions, "-o", questions, "--url", service.url, "--overwrite")
    assert (code, questions.read_bytes()) == (1, QUESTIONS)
    assert "not that of the input" in said


def test_missing_files_and_folders_are_one_sentence(service: StandIn, questions: Path, tmp_path: Path) -> None:
    for arguments in ((tmp_path / "no.jsonl", "-o", tmp_path / "a"), (questions, "-o", tmp_path / "no" / "a")):
        code, said = run(*arguments, "--url", service.url)
        assert (code, "No such file or directory" in said) == (1, True)


@pytest.fixture
def interrupted(service: StandIn, tmp_path: Path) -> Iterator[tuple[Path, Path, "subprocess.Popen[bytes]"]]:
    """Start a run over 3,000 lines that has answered some while the service keeps it waiting."""
    questions, output = write_questions(tmp_path / "q.jsonl", 3000), tmp_path / "a.jsonl"
    service.polls_until_final = 10_000
    command = [sys.executable, "-c", COMMAND, str(questions), "-o", str(output), "--url", service.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while (not output.exists() or output.stat().st_size < 1000) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield questions, output, process
        process.kill()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_and_nothing_is_asked_twice(
    service: StandIn, interrupted: tuple[Path, Path, "subprocess.Popen[bytes]"], end: signal.Signals
) -> None:
    questions, output, process = interrupted
    process.send_signal(end)
    _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said
    if end == signal.SIGINT:
        assert process.returncode == 130
        *_, first, open_jobs, to_resume, _, _, _, to_stop = said.decode().splitlines()
        assert first == f"stopped: {len(read(output))} lines answered"
        assert open_jobs == "  3 jobs go on at the service and are charged: 1,500 lines not answered yet"
        assert to_resume == "  to resume: run the same command again, without --overwrite"
        assert to_stop.strip() == f"corelane jobs cancel {[*service.jobs][-1]} --url {service.url}"
        assert output.read_bytes().endswith(b"}\n")
    assert not service.canceled
    for job in service.jobs.values():
        job["polls"] = 0
    service.polls_until_final = 0
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    assert [result["index"] for result in read(output)] == list(range(3000))
    asked = sorted(int(item["id"]) for job in service.jobs.values() for item in job["body"]["items"])
    assert asked == list(range(3000))
    assert sorted(path.name for path in output.parent.iterdir()) == ["a.jsonl", "a.jsonl.run", "q.jsonl"]


def test_jobs_that_were_canceled_meanwhile_are_asked_again(
    service: StandIn, interrupted: tuple[Path, Path, "subprocess.Popen[bytes]"]
) -> None:
    questions, output, process = interrupted
    process.kill()
    process.wait()
    service.canceled += [*service.jobs]
    service.polls_until_final = 0
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    assert [(result["index"], result["status"]) for result in read(output)] == [(n, "succeeded") for n in range(3000)]
    assert len(service.jobs) == 6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--top-k", "2"], "--top-k was not given, now it is 2"),
        (["--model", "other"], "--model was default, now it is other"),
        (["--always-answer"], "--always-answer was not given, now it is given"),
        (["--threshold", "0.5", "--priority", "low"], "was not given, now it is 0.5; --priority was normal, now it is"),
    ],
)
def test_a_resume_that_would_ask_otherwise_is_refused(
    service: StandIn, tmp_path: Path, given: list[str], told: str
) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 5), tmp_path / "a.jsonl"
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    before = output.read_bytes()
    service.requests.clear()
    code, said = run(questions, "-o", output, "--url", service.url, *given)
    assert (code, output.read_bytes(), service.requests) == (1, before, [])
    assert told in said
    assert "start over with --overwrite" in said
    assert run(questions, "-o", output, "--url", service.url, *given, "--overwrite")[0] == 0
    assert [result["index"] for result in read(output)] == list(range(5))


def test_the_bar_counts_all_jobs_under_way_and_its_rate_what_this_run_did(service: StandIn, tmp_path: Path) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 3000), tmp_path / "a.jsonl"
    service.polls_until_final = 10_000  # half of each job is done, and no more
    command = [sys.executable, "-c", COMMAND, str(questions), "-o", str(output), "--url", service.url]
    with terminal(command, has_output=False) as shown:
        eventually(lambda: any("1,500 of 3,000 lines" in line for line in shown.lines()))
        assert len(read(output)) == 500
    assert any(" 50% " in line and " left" in line for line in shown.lines() if "of 3,000 lines" in line)
    assert max(map(len, shown.lines())) <= 80
    # What was done before counts as done, and not for the rate.
    with terminal(command, has_output=False) as shown:
        eventually(lambda: any("1,500 of 3,000 lines" in line for line in shown.lines()))
        assert {line.split()[-1] for line in shown.lines() if "of 3,000 lines" in line} == {"0/s"}


def test_results_on_a_terminal_have_no_bar_between_them(service: StandIn, questions: Path) -> None:
    with terminal([sys.executable, "-c", COMMAND, str(questions), "--url", service.url]) as shown:
        shown.end()
    *results, counts, rate = shown.lines()
    assert [orjson.loads(line)["index"] for line in results] == [0, 2, 3, 4, 5, 7]
    assert counts == "6 lines: 3 answered, 1 without an answer, 2 failed"
    assert rate.startswith("6 in ")
    assert b"\x1b[" not in shown.raw


def test_standard_input_to_standard_output(service: StandIn, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "--url", service.url, "--json"]
    done = subprocess.run(command, input=QUESTIONS, capture_output=True, check=False, timeout=60)
    assert [orjson.loads(line)["index"] for line in done.stdout.splitlines()] == [0, 2, 3, 4, 5, 7]
    told = orjson.loads(done.stderr)
    assert (done.returncode, told["lines"], told["failed"], told["without_answer"]) == (2, 6, 2, 1)


def test_csv_in_and_out(service: StandIn, tmp_path: Path) -> None:
    questions, output = tmp_path / "q.CSV", tmp_path / "a.csv"
    questions.write_bytes(CSV_QUESTIONS)
    code, said = run(questions, "-o", output, "--url", service.url)
    assert (code, "5 lines: 2 answered, 2 without an answer, 1 failed" in said) == (2, True), said
    rows = list(csv.DictReader(io.StringIO(output.read_text())))
    assert [(row["index"], row["id"], row["status"], row["answer"]) for row in rows] == [
        ("0", "a", "succeeded", "Ada,"),
        ("1", "", "succeeded", 'Zoë"s'),
        ("3", "c", "failed", ""),
        ("4", "d", "succeeded", ""),
        ("5", "e\nf", "succeeded", ""),
    ]
    assert rows[0] | {"start": "0", "end": "4", "score": "0.5"} == rows[0]
    told = "the first line is the header of a table: name it by the ending .csv\n"
    assert run(questions.rename(tmp_path / "table"), "--url", service.url) == (1, told)


def test_a_disk_that_fills_up_is_one_sentence_and_can_be_gone_on_after(service: StandIn, tmp_path: Path) -> None:
    questions, output = write_questions(tmp_path / "q.jsonl", 50), tmp_path / "a.jsonl"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));" + COMMAND
    command = [sys.executable, "-c", limited, str(questions), "-o", str(output), "--url", service.url]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"File too large" in done.stderr
    assert b"Traceback" not in done.stderr
    assert run(questions, "-o", output, "--url", service.url)[0] == 0
    assert [result["index"] for result in read(output)] == list(range(50))


@pytest.mark.parametrize("output", ["/dev/null", "/"])
def test_an_output_that_is_no_file_is_refused(service: StandIn, questions: Path, output: str) -> None:
    code, said = run(questions, "-o", output, "--url", service.url)
    assert (code, "it must be a file" in said) == (1, True)


def test_a_wait_is_told_where_output_is_no_terminal(service: StandIn, questions: Path, tmp_path: Path) -> None:
    service.refusals.append(answer({"object": "list", "data": []}))
    service.refusals.append(problem(429, "overloaded", "25 tokens may wait and 50 do", retry_after="1"))
    code, said = run(questions, "-o", tmp_path / "out.jsonl", "--url", service.url)
    assert code == 2
    assert re.search(r"^\d\d:\d\d:\d\d waiting: 25 tokens may wait and 50 do; trying again in 1 s$", said, re.MULTILINE)
    service.refusals.append(answer({"object": "list", "data": []}))
    service.refusals.append(problem(429, "overloaded", "25 tokens may wait and 50 do", retry_after="1"))
    assert "waiting" not in run(questions, "-o", tmp_path / "quiet.jsonl", "--quiet", "--url", service.url)[1]


def test_a_wait_that_goes_on_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = ServiceError("too much waits", status=429, problem_code="overloaded")
    waiting = WaitNotice()
    for attempt in range(3):
        waiting(Wait(refusal, 60, 60.0 * attempt, attempt))
    waiting(Wait(ServiceUnreachable("no Corelane replies"), 8, 180, 3))
    waiting(Wait(ServiceUnreachable("gone"), 0.2))
    first, other = capsys.readouterr().err.splitlines()
    assert first.endswith(" waiting: too much waits; trying again in 60 s")
    assert other.endswith(" still waiting, for 180 s: no Corelane replies; trying again in 8 s")


def test_a_run_in_which_nothing_is_answered_says_so(
    service: StandIn, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "REPORT_S", 0.05)
    service.polls_until_final = 5
    _, said = run(questions, "-o", tmp_path / "out.jsonl", "--url", service.url)
    assert "lines answered, no new ones; `corelane cores` shows the cores' states" in said
