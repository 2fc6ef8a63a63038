"""``corelane ask``, and how every command that needs the service reports that it cannot."""

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.cli.output import plain
from corelane.tasks.question_answering.cli.ask import ask, surroundings
from tests.corelane.stand_in import StandIn
from tests.tools.waiting import eventually

#: The command as a program, with Ctrl-C as a terminal has it, even where the tests run in a background that ignores it.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);from corelane.cli.app import main; main()"
)


def run(*arguments: str, text: str | bytes | None = None) -> Result:
    app = CommandGroup()
    app.command()(ask)
    return CliRunner().invoke(app, arguments, input=text)


def test_the_answer_is_shown_with_its_score_offsets_and_surroundings(service: StandIn) -> None:
    done = run("Who?", "--context", "  Ada wrote it.", "--url", service.url)
    assert done.exit_code == 0, done.output
    assert "score 0.500 · characters 2–5" in done.stdout
    assert "Ada wrote it." in done.stdout
    assert "\x1b" not in done.stdout
    done = run("Nothing?", "-c", "Ada wrote it.", "--url", service.url)
    assert (done.exit_code, done.stdout.strip()) == (0, "no answer in this context (score 0.750)")
    done = run("Broken?", "-c", "Ada wrote it.", "--url", service.url)
    assert (done.exit_code, done.stderr.strip().splitlines()[-1]) == (1, "it broke")
    done = run("Who?", "-c", "Zoë wrote", "--json", "--url", service.url)
    assert orjson.loads(done.stdout)["answer"] == {"text": "Zoë", "start": 0, "end": 3, "score": 0.5}


def test_a_context_is_a_file_standard_input_or_the_passage_itself(service: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "passage.txt"
    file.write_bytes(b"Grace\r\nwrote it.")
    assert "Grace" in run("Who?", "-c", str(file), "--url", service.url).stdout
    assert "Zoë" in run("Who?", "-c", "-", "--url", service.url, text="Zoë wrote it.".encode()).stdout
    for passage in ("Ada " + "x" * 100_000, "東京で書いた。"):
        assert run("Who?", "-c", passage, "--url", service.url).exit_code == 0
    given = [body["items"][0]["context"] for body in service.bodies]
    assert given == ["Grace\r\nwrote it.", "Zoë wrote it.", "Ada " + "x" * 100_000, "東京で書いた。"]
    assert "not UTF-8" in run("Who?", "-c", "-", "--url", service.url, text=b"\xff\xfe").stderr


def test_a_problem_of_the_service_is_one_red_sentence(service: StandIn) -> None:
    service.server.clear()
    service.server.expect_request("/v1/jobs").respond_with_json({"detail": "no [such] model", "code": "x"}, status=422)
    done = run("Who?", "-c", "Ada wrote it.", "--url", service.url)
    assert done.exit_code == 1
    assert "no [such] model" in done.stderr
    assert "Traceback" not in done.output


def test_without_a_service_the_command_says_how_to_start_one() -> None:
    done = run("Who?", "-c", "Ada wrote it.", "--url", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert "no Corelane replies at http://127.0.0.1:9; start one with `corelane serve`" in done.stderr


def test_options_and_priority_are_sent_as_they_are_given(service: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [
        "--threshold",
        "0.5",
        "--doc-stride",
        "64",
        "--offsets",
        "utf16",
        "--offsets",
        "bytes",
        "--always-answer",
    ]
    monkeypatch.setenv("CORELANE_API_KEY", "secret-1")
    done = run("Who?", "-c", "Ada wrote it.", *options, "--priority", "high", "--url", service.url)
    assert done.exit_code == 0, done.output
    [body] = service.bodies
    assert body["options"] == {
        "doc_stride": 64,
        "no_answer_threshold": 0.5,
        "no_answer": False,
        "offsets": ["utf16", "bytes"],
    }
    assert (body["priority"], service.keys) == ("high", ["Bearer secret-1"])
    assert run("Who?", "-c", "Ada wrote it.", "--min-precision", "0.9", "--url", service.url).exit_code == 0
    assert service.bodies[1] == {
        "items": [{"question": "Who?", "context": "Ada wrote it."}],
        "model": "default",
        "options": {"min_precision": 0.9},
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Who?", "-c", "/etc"), "/etc is a folder; name a file in it"),
        (("Who?", "-c", "passages/missing.txt"), "there is no file passages/missing.txt"),
        (("Who?", "-c", "contract"), "there is no file contract"),
        (("Who?", "-c", "my passages/the contract.txt"), "there is no file my passages/the contract.txt"),
        (("", "-c", "Ada wrote it."), "the question is empty"),
        (("Who?", "-c", " \n"), "the passage is empty"),
        (("Who?", "-c", "Ada wrote it.", "--min-precision", "0.5", "--always-answer"), "leave --threshold and"),
        (("Who?", "-c", "Ada wrote it.", "--min-precision", "50"), "a share between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(
    service: StandIn, arguments: tuple[str, ...], said: str
) -> None:
    done = run(*arguments, "--url", service.url)
    assert (done.exit_code, said in done.stderr) == (1, True), done.output
    assert not service.requests


def test_a_question_whose_version_no_core_holds_says_so(service: StandIn) -> None:
    service.answers_at_once, service.status, service.polls_until_final = False, "queued", 2
    service.waiting_for = "no core holds words@1 yet: it is loading on [host/0]"
    done = run("Who?", "-c", "Ada wrote it.", "--url", service.url)
    assert (done.exit_code, "score 0.500" in done.stdout) == (0, True)
    [said] = done.stderr.splitlines()
    assert said.startswith(f"{service.waiting_for}; job_")
    assert said.endswith(" waits, `corelane cores` shows the cores' states")


def test_ctrl_c_cancels_the_question(service: StandIn) -> None:
    service.answers_at_once, service.status, service.polls_until_final = False, "queued", 10_000
    arguments = [sys.executable, "-c", INTERRUPTIBLE, "ask", "Who?", "-c", "Ada wrote it.", "--url", service.url]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: any("GET /v1/jobs/" in request for request in service.requests))
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    [job] = service.jobs
    assert (process.returncode, shown, service.canceled) == (130, "", [job])
    assert f"{job} is canceled" in said


def test_a_service_that_goes_away_leaves_the_id_of_the_question(service: StandIn) -> None:
    service.answers_at_once, service.status, service.polls_until_final = False, "queued", 10_000
    service.is_away = True
    done = run("Who?", "-c", "Ada wrote it.", "--url", service.url)
    [job] = service.jobs
    assert done.exit_code == 1
    assert f"the question is {job}; `corelane jobs results {job}` fetches its answer" in done.stderr


@given(st.text(alphabet="ab \n…", max_size=60), st.integers(0, 60), st.integers(0, 60), st.integers(1, 20))
def test_surroundings_are_what_stands_there_cut_with_an_ellipsis(text: str, one: int, other: int, width: int) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    before, after = surroundings(text, start, end, width)
    assert text[:start].endswith(before.removeprefix("…") if start > width else before)
    assert text[end:].startswith(after.removesuffix("…") if len(text) > end + width else after)
    assert max(len(before), len(after)) <= width + 1


@given(st.text())
def test_shown_text_cannot_steer_the_terminal(text: str) -> None:
    assert len(plain(text)) == len(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in plain(text))
