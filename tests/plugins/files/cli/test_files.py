"""``corelane files``, ``batches`` and the webhooks of a job, against a service of real sockets."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.client import Client
from corelane.domain.batches import BatchError
from corelane.plugins.files.cli.batches import list_faults
from tests.corelane.stand_in import DELIVERY, ITEM, StandIn

LINES = b'{"custom_id": "a", "method": "POST", "url": "/v1/answers", "body": {}}\n' * 3


def run(service: StandIn, *arguments: object) -> Result:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(make_cli(), [*map(str, arguments), "--url", service.url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def lines_of(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [orjson.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(LINES)
    return path


def test_a_file_goes_up_and_comes_down_whole(service: StandIn, questions: Path, tmp_path: Path) -> None:
    [file] = lines_of(run(service, "files", "upload", questions, "--json"))
    assert service.files == {file["id"]: LINES}
    assert run(service, "files", "download", file["id"]).stdout_bytes == LINES
    copy = tmp_path / "copy.jsonl"
    [told] = lines_of(run(service, "files", "download", file["id"], "-o", copy, "--json"))
    assert told == {"id": file["id"], "path": str(copy), "bytes": len(LINES)}
    assert copy.read_bytes() == LINES
    assert lines_of(run(service, "files", "delete", file["id"], "--json")) == [{"id": file["id"], "deleted": True}]
    assert not service.files


def test_files_are_listed_newest_first_and_shown_as_they_are_named(service: StandIn, questions: Path) -> None:
    shown = [run(service, "files", "upload", questions).stdout for _ in range(3)][-1]
    assert shown.splitlines()[0].split() == ["file", "file_2"]
    assert [file["id"] for file in lines_of(run(service, "files", "list", "--limit", 2, "--json"))] == [
        "file_2",
        "file_1",
    ]
    assert "questions[1].jsonl" in run(service, "files", "list").stdout


def test_what_cannot_be_fetched_or_sent_is_one_sentence_and_leaves_nothing(service: StandIn, tmp_path: Path) -> None:
    for arguments, told in (
        (("files", "upload", tmp_path), "there is no file"),
        (("files", "download", "file_9", "-o", tmp_path / "copy"), "there is no file file_9"),
        (("files", "download", "file_9", "--json"), "name a file with --output"),
        (("files", "delete", "file_9"), "there is no file file_9"),
        (("batches", "show", "batch_9", "--json"), "there is no batch batch_9"),
    ):
        done = run(service, *arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        assert told in done.stderr
    assert not list(tmp_path.iterdir())


def test_batches_are_created_listed_shown_and_canceled(service: StandIn) -> None:
    [batch] = lines_of(run(service, "batches", "create", "file_0", "--json"))
    run(service, "batches", "create", "file_0")
    assert [each["id"] for each in lines_of(run(service, "batches", "list", "--json"))] == ["batch_1", batch["id"]]
    assert "batch_1  in_progress  2/3" in run(service, "batches", "list", "--limit", 1).stdout
    shown = run(service, "batches", "show", batch["id"]).stdout
    assert "it is no [JSON] (line 7)" in shown
    assert "expires     2026-01-02T00:00:00.000Z" in shown
    assert lines_of(run(service, "batches", "cancel", batch["id"], "--json"))[0]["status"] == "cancelled"


def test_more_files_than_a_page_holds_are_listed(service: StandIn) -> None:
    service.files = {f"file_{number}": b"" for number in range(1200)}
    listed = lines_of(run(service, "files", "list", "--limit", 5000, "--json"))
    assert [file["id"] for file in listed] == [*service.files][::-1]


def test_a_jobs_webhooks_are_listed_and_posted_again(service: StandIn) -> None:
    assert lines_of(run(service, "webhooks", "list", "job_1", "--json")) == [DELIVERY]
    shown = run(service, "webhooks", "list", "job_1").stdout
    assert "evt_1_completed  job.completed  dead   1         -     HTTP 500  https://example.com/[hook]" in shown
    assert lines_of(run(service, "webhooks", "redeliver", "evt_1_completed", "--json"))[0]["state"] == "pending"
    assert "state       pending" in run(service, "webhooks", "redeliver", "evt_1_completed").stdout
    assert service.requests[-1] == "POST /v1/deliveries/evt_1_completed/redeliver"


def test_time_of_a_webhooks_next_attempt_is_told_to_the_second(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DELIVERY, "next_attempt_at", "2026-11-25T21:20:31.250Z")
    assert "  2026-11-25 21:20:31  " in run(service, "webhooks", "list", "job_1").stdout


def test_ids_alone_are_printed_for_other_commands(service: StandIn, questions: Path) -> None:
    assert run(service, "files", "upload", questions, "-q").stdout == "file_0\n"
    run(service, "batches", "create", "file_0")
    assert run(service, "files", "list", "-q").stdout == "file_0\n"
    assert run(service, "batches", "list", "--quiet").stdout == "batch_0\n"
    job = Client(service.url).submit([ITEM]).id
    assert run(service, "jobs", "list", "-q").stdout == f"{job}\n"


def test_a_file_for_the_other_command_is_told_apart_before_it_is_sent(service: StandIn, tmp_path: Path) -> None:
    questions, lines = tmp_path / "questions.jsonl", tmp_path / "lines.jsonl"
    questions.write_bytes(b'\n{"question": "Who?", "context": "Ada wrote it."}\n')
    lines.write_bytes(b"\xef\xbb\xbf" + LINES)
    done = run(service, "files", "upload", questions)
    assert (done.exit_code, f"is a file for `corelane batch {questions} -o" in done.stderr) == (1, True), done.stderr
    done = run(service, "batch", lines, "-o", tmp_path / "out.jsonl")
    assert (done.exit_code, "this is a file for `corelane batches`" in done.stderr) == (1, True), done.stderr
    assert not service.requests


def test_the_same_fault_of_many_lines_is_told_once() -> None:
    faults = [BatchError(code="x", message="it is no JSON", line=n) for n in range(1, 21)]
    other = [BatchError(code="x", message="it is [bad]", line=1000), BatchError(code="x", message="no lines")]
    assert (
        list_faults(faults + other) == "it is no JSON (lines 1, 2, 3 and 17 more); it is [bad] (line 1,000); no lines"
    )


#: What a list holds that somebody copies: ids are as long as the service's.
FILE_ID, BATCH_ID = "file_01m80gd0atznzs5hx77mggzad1", "batch_01m80gd0atznzs5hx77mggzad2"


@pytest.mark.parametrize("env", [{"COLUMNS": "80"}, {"COLUMNS": "80", "TTY_COMPATIBLE": "1"}, {"COLUMNS": "40"}])
def test_ids_are_whole_at_80_columns_and_in_a_pipe(
    service: StandIn, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files, service.batches = {FILE_ID: LINES}, {BATCH_ID: "completed"}
    monkeypatch.setitem(DELIVERY, "id", "evt_01m80gd0atznzs5hx77mggzad3_completed")
    monkeypatch.setattr("tests.corelane.stand_in.OUTPUT_ID", "file_01m80gd0atznzs5hx77mggzad4")
    for arguments, ids in (
        (("files", "list"), [FILE_ID]),
        (("batches", "list"), [BATCH_ID, "file_01m80gd0atznzs5hx77mggzad4"]),
        (("webhooks", "list", "job_1"), ["evt_01m80gd0atznzs5hx77mggzad3_completed", "https://example.com/[hook]"]),
    ):
        done = CliRunner(env=env).invoke(make_cli(), [*arguments, "--url", service.url])
        assert done.exit_code == 0, done.output
        shown = done.stdout.split()
        assert set(ids) <= set(shown), done.stdout
        if "TTY_COMPATIBLE" not in env:
            assert len(done.stdout.splitlines()) == 2


def test_a_deleted_job_is_told_to_programs(service: StandIn) -> None:
    service.jobs["job_1"] = {"body": {"items": [ITEM]}, "polls": 0, "read": 0, "dropped": 0}
    assert lines_of(run(service, "jobs", "delete", "job_1", "--json")) == [{"id": "job_1", "deleted": True}]
