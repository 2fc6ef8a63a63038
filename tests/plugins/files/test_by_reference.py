"""Jobs by reference over HTTP and from the command line, with a keeper beside; and a keeper that is killed."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from corelane.cli.commands import CommandGroup
from corelane.domain.jobs import DEFAULT_TASK
from corelane.plugins.files.references.carrier import Carrier
from corelane.plugins.files.references.reading import InputReader
from corelane.plugins.files.store.references import ReferenceStore
from corelane.settings import Settings
from corelane.store.feeding import Feeder
from corelane.tasks.question_answering.cli.batch import batch
from corelane.tasks.registry import TASKS
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import VERSION, answer_all
from tests.plugins.files.test_references import lines
from tests.tools.fleet import armed
from tests.tools.s3 import put
from tests.tools.told_core import FORMED, telling
from tests.tools.waiting import eventually

CONSOLE = True

#: One keeper's round, in a process of its own.
KEEPER = """
from corelane.settings import read_settings
from corelane.plugins.files.store.references import ReferenceStore
from corelane.plugins.files.references.reading import InputReader
import sys
settings = read_settings()
InputReader(settings, ReferenceStore(settings), bool, 20_000).read(sys.argv[1])
"""


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str, s3: str) -> Iterator[Service]:
    prefixes = (f"{s3}/", "https://127.0.0.1/")
    changes: dict[str, Any] = {"input_urls": prefixes, "output_urls": prefixes}
    changes["reference_allowed_networks"] = (ip_network("127.0.0.0/8"),)
    yield from run_service(settings.model_copy(update=changes), raw, bell)


@contextmanager
def keeper(service: Service) -> Iterator[None]:
    """Run what a keeper and a core do, in a thread."""
    bench, over = service.bench, threading.Event()
    carrier, feeder, core = Carrier(bench.settings, "keeper"), Feeder(bench.settings, bench.bell), bench.core("a/0")

    def run() -> None:
        while not over.is_set():
            carrier.go_round(over.is_set)
            for job in feeder.jobs():
                feeder.feed(job)
            answer_all(core)
            over.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def test_command_answers_questions_at_a_url_to_a_url_or_a_file(
    service: Service, s3: str, bucket: Path, tmp_path: Path
) -> None:
    put(bucket / "in.jsonl", lines(30))
    app = CommandGroup()
    app.command()(batch)
    given = [f"{s3}/in.jsonl", "--url", service.url, "--model", VERSION, "-o"]
    with keeper(service):
        to_bucket = CliRunner().invoke(app, [*given, f"{s3}/out.jsonl"])
        to_file = CliRunner().invoke(app, [*given, str(tmp_path / "out.jsonl")])
    assert (to_bucket.exit_code, to_file.exit_code) == (0, 0), to_bucket.output + to_file.output
    assert "succeeded: 30 of 30 succeeded; results written" in to_bucket.output
    for output in (bucket / "out.jsonl", tmp_path / "out.jsonl"):
        assert [json.loads(line)["id"] for line in output.read_bytes().splitlines()] == [f"i{n}" for n in range(30)]


def test_command_says_why_an_input_cannot_be_read(service: Service, s3: str) -> None:
    app = CommandGroup()
    app.command()(batch)
    with keeper(service):
        failed = CliRunner().invoke(app, [f"{s3}/none", "--url", service.url, "--model", VERSION])
    assert failed.exit_code == 2
    assert "there is no object" in failed.output


def test_url_that_is_not_allowed_is_refused_and_names_the_setting(service: Service, s3: str) -> None:
    one = {"question": "who", "context": "ada"}
    for body, setting in (
        ({"input_url": "s3://another/a"}, "CORELANE_INPUT_URLS"),
        ({"input_url": f"{s3}/../a"}, "CORELANE_INPUT_URLS"),
        (one | {"output_url": "https://169.254.169.254/latest"}, "CORELANE_OUTPUT_URLS"),
    ):
        refused = service.http.post("/v1/jobs", json=body | {"model": VERSION})
        assert (refused.status_code, refused.json()["code"]) == (422, "url_refused")
        assert setting in refused.json()["detail"]
    head = json.dumps({"output_url": "s3://another/a", "model": VERSION}).encode()
    refused = service.http.post(
        "/v1/jobs", content=head + b"\n" + lines(1), headers={"Content-Type": "application/x-ndjson"}
    )
    assert refused.json()["code"] == "url_refused"
    for extra in (one, {"items": [one]}):
        refused = service.http.post("/v1/jobs", json=extra | {"input_url": f"{s3}/a", "model": VERSION})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), extra


def test_unread_job_is_one_job_however_often_it_is_sent_and_shows_no_query(service: Service, s3: str) -> None:
    body = {"input_url": "https://127.0.0.1/a?key=secret", "output_url": f"{s3}/b", "model": VERSION}
    first = service.http.put("/v1/jobs/march", json=body)
    assert first.status_code == 202, first.text
    job = first.json()
    assert job["input"] == {
        "url": "https://127.0.0.1/a",
        "state": "waiting",
        "bytes": 0,
        "items": 0,
        "error": None,
    }
    assert service.http.put("/v1/jobs/march", json=body).json()["id"] == job["id"]
    page = service.http.get(f"/v1/jobs/{job['id']}/results").json()
    assert (page["data"], page["has_more"]) == ([], True)
    shown = service.http.get(f"/console/jobs/{job['id']}")
    assert shown.status_code == 200
    assert "https://127.0.0.1/a" in shown.text
    assert "secret" not in shown.text + first.text + service.http.get("/v1/jobs").text


def test_keeper_killed_while_it_reads_is_followed_by_another(
    service: Service, s3: str, bucket: Path, pytestconfig: pytest.Config
) -> None:
    put(bucket / "a", lines(3000))
    for _ in range(pytestconfig.getoption("--rounds")):
        kill_and_go_on(service, s3)


def kill_and_go_on(service: Service, s3: str) -> None:
    bench = service.bench
    job = service.http.post("/v1/jobs", json={"input_url": f"{s3}/a", "model": VERSION}).json()["id"]
    env = armed(bench.settings, "input.part_noted")
    killed = subprocess.run([sys.executable, "-c", KEEPER, job], env=env, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    found = service.http.get(f"/v1/jobs/{job}").json()
    assert (found["status"], found["input"]["state"], 0 < found["input"]["items"] < 3000) == ("queued", "reading", True)
    store = ReferenceStore(bench.settings)
    InputReader(bench.settings, store, bool, 20_000).read(job)
    store.close()
    feeder, core = Feeder(bench.settings, bench.bell), bench.core("a/0")
    while not bench.get(job).status.is_final:
        feeder.feed(job)
        answer_all(core)
    assert [result["id"] for result in bench.results(job)] == [f"i{n}" for n in range(3000)]


@pytest.mark.parametrize("task", [name for name in FORMED if name != DEFAULT_TASK])
def test_lines_of_any_task_are_read_from_a_url_and_written_to_one(
    service: Service, s3: str, bucket: Path, task: str
) -> None:
    put(bucket / "in.jsonl", json.dumps(dict(TASKS[task].example)).encode() + b"\n" + b'{"colour": 1}\n')
    urls = {"input_url": f"{s3}/in.jsonl", "output_url": f"{s3}/out.jsonl"}
    with telling(service.bench, [task]), keeper(service):
        body = urls | {"model": task, "invalid_items": "fail"}
        job = service.http.post("/v1/jobs", json=body).json()["urls"]["self"]
        eventually(lambda: (bucket / "out.jsonl").exists(), why=lambda: service.http.get(job).text)
    good, bad = map(json.loads, (bucket / "out.jsonl").read_bytes().splitlines())
    assert (good["status"], bad["status"]) == ("succeeded", "failed")
    assert TASKS[task].result.mark in good
    assert f"this model takes items for {task}" in bad["error"]["detail"]
