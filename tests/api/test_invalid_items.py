"""Jobs with bad items: refused, or with each bad item failed alone, in its place, however the items came."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from pydantic import SecretStr

from corelane.plugins.files.references.reading import InputReader
from corelane.plugins.files.references.writing import OutputWriter
from corelane.plugins.files.store.references import ReferenceStore
from corelane.settings import Settings
from corelane.store.dispatch import ClaimedSlice, SliceResults
from corelane.store.feeding import Feeder
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import VERSION
from tests.tools.fleet import armed
from tests.tools.s3 import S3Server, put

LINES = {"Content-Type": "application/x-ndjson"}
SHARED = {"c": "Ada wrote it."}

#: Ways in which an item may be bad, and what is said of each.
WAYS: list[tuple[Any, str, str]] = [
    ([1], "invalid_input", "is not a JSON object"),
    ({"context": "Ada."}, "invalid_input", "question: this is required"),
    ({"question": " ", "context": "Ada."}, "invalid_input", "question: must hold more than white space"),
    ({"question": 5, "context": "Ada."}, "invalid_input", "question: a text is wanted"),
    ({"question": "Who?"}, "invalid_input", "give a `context`"),
    ({"question": "Who?", "context": "Ada.", "contxt": "Ada."}, "invalid_input", "contxt: there is no such field"),
    ({"question": "Who?", "context_id": "nowhere"}, "invalid_input", "there is no 'nowhere'"),
    ({"question": "Who?", "context": 5}, "invalid_input", "context: a text is wanted"),
    ({"question": "Who?" * 100, "context": "Ada."}, "too_large", "the question is longer than 300 characters"),
    ({"id": 1.5, "question": "Who?", "context": "Ada."}, "invalid_input", "id: a text is wanted"),
]

#: One round of a keeper's feeding, and a job that is sent to an API, each in a process of its own.
FEED = """
import sys
from corelane.broker.app import bell_envelope, make_celery
from corelane.settings import read_settings
from corelane.store.dispatch import ClaimedSlice, SliceResults
from corelane.store.feeding import Feeder
settings = read_settings()
Feeder(settings, bell_envelope(make_celery(settings))).feed(sys.argv[1])
"""
SEND = """
import sys
from fastapi.testclient import TestClient
from api.app import create_app
from corelane.settings import read_settings
with TestClient(create_app(read_settings())) as client:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}
    client.post("/v1/jobs", content=sys.stdin.buffer.read(), headers=headers)
"""


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str, s3: str) -> Iterator[Service]:
    changes: dict[str, Any] = {
        "input_urls": (f"{s3}/",),
        "output_urls": (f"{s3}/",),
        "reference_allowed_networks": (ip_network("127.0.0.0/8"),),
        "max_question_chars": 300,
        "webhook_secret": SecretStr("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "webhook_allowed_networks": (ip_network("127.0.0.0/8"),),
    }
    yield from run_service(settings.model_copy(update=changes), raw, bell)


def values(count: int) -> list[Any]:
    """Return items of which every hundredth is bad, in all ways by turns; some ids are numbers."""
    found: list[Any] = []
    for n in range(count):
        good = {"id": n if n % 2 else f"i{n}", "question": f"Who {n}?", "context_id": "c"}
        bad = WAYS[n // 100 % len(WAYS)][0]
        found.append(good if n % 100 != 50 else bad | {"id": n} if isinstance(bad, dict) and "id" not in bad else bad)
    return found


def answer(service: Service, job: str) -> None:
    """Do what a keeper and a core do, until a job is final; each item's answer is what it asked."""
    feeder, core = Feeder(service.bench.settings, service.bench.bell), service.bench.core("a/0")
    while not service.bench.get(job).status.is_final:
        feeder.feed(job)
        while (claim := core.claim([VERSION], linger=False)) is not None:
            core.commit(claim.lease, [echoed(each) for each in core.fetch(claim)])
    feeder.feed(job)


def echoed(claimed_slice: ClaimedSlice) -> SliceResults:
    """Return results that repeat what was asked."""
    results = [
        {"index": index, "id": item_id, "status": "succeeded", "asked": f"{question} {context}"}
        for index, (item_id, question, context) in enumerate(claimed_slice.items, claimed_slice.ref.first)
    ]
    return SliceResults(claimed_slice.ref, results)


def require_each_in_its_place(lines: list[bytes], count: int, where: str) -> None:
    """Check that all items but the bad ones were answered; bad ones say what is wrong with which line or item."""
    results = [orjson.loads(line) for line in lines]
    assert [result["index"] for result in results] == list(range(count))
    failed = {result["index"]: result["error"] for result in results if result["status"] == "failed"}
    assert list(failed) == list(range(50, count, 100))
    for index, error in failed.items():
        _, code, said = WAYS[index // 100 % len(WAYS)]
        line = index + 2 if where == "line" else index
        assert (error["code"], error["detail"].startswith(f"{where} {line}")) == (code, True), error
        assert said in error["detail"]
    for result in results:
        if result["status"] == "succeeded":
            n = result["index"]
            assert (result["id"], result["asked"]) == (str(n) if n % 2 else f"i{n}", f"Who {n}? Ada wrote it.")


def send(service: Service, form: str, items: list[Any], s3: str, bucket: Path) -> dict[str, Any]:
    """Submit items in one of the forms."""
    told = {"url": "http://127.0.0.1:9/", "events": ["job.completed", "job.succeeded", "job.failed"]}
    head = {"invalid_items": "fail", "contexts": SHARED, "output_url": f"{s3}/out", "webhook": told}
    if form == "json":
        return service.http.post("/v1/jobs", json=head | {"items": items}).raise_for_status().json()
    if form == "lines":
        body = b"\n".join(map(orjson.dumps, [head, *items]))
        return service.http.post("/v1/jobs", content=body, headers=LINES).raise_for_status().json()
    put(bucket / "in", b"\n".join(map(orjson.dumps, [{"contexts": SHARED}, *items])))
    asked = {"input_url": f"{s3}/in", "output_url": f"{s3}/out", "model": VERSION, "webhook": told}
    job = service.http.post("/v1/jobs", json=asked).raise_for_status().json()
    read(service, job["id"])
    return job


def events_of(service: Service, job: dict[str, Any]) -> set[str]:
    """Return the events of a job that are posted to its webhook."""
    listed = service.http.get(job["urls"]["deliveries"]).raise_for_status().json()["data"]
    return {each["event"] for each in listed}


def read(service: Service, job: str) -> None:
    """Read a job's input, as a keeper does."""
    with closing(ReferenceStore(service.bench.settings)) as store:
        InputReader(service.bench.settings, store, bool).read(job)


@pytest.fixture
def bucket(s3: str, s3_server: S3Server) -> Path:
    return s3_server.folder / s3.removeprefix("s3://")


@pytest.mark.parametrize("form", ["json", "lines", "url"])
def test_bad_items_fail_alone_and_all_others_are_answered(service: Service, form: str, s3: str, bucket: Path) -> None:
    count = 10_000
    job = send(service, form, values(count), s3, bucket)
    answer(service, job["id"])
    done = service.http.get(job["urls"]["self"]).json()
    assert (done["status"], done["error"]) == ("succeeded", None)
    bad = count // 100
    assert done["counts"] == {"total": count, "succeeded": count - bad, "failed": bad, "canceled": 0, "expired": 0}
    streamed = service.http.get(job["urls"]["results"], headers={"Accept": "application/x-ndjson"}).content
    require_each_in_its_place(streamed.splitlines(), count, "item" if form == "json" else "line")
    with closing(ReferenceStore(service.bench.settings)) as store:
        OutputWriter(service.bench.settings, store, bool).write(job["id"])
    assert (bucket / "out").read_bytes() == streamed
    assert events_of(service, job) == {"job.completed", "job.succeeded"}
    failed = service.http.get("/v1/jobs", params={"code": "too_large"}).json()["data"]
    assert failed[0]["id"] == job["id"]
    assert service.http.post(job["urls"]["retry"]).json()["code"] == "nothing_to_retry"


@pytest.mark.parametrize("form", ["json", "lines", "url"])
def test_job_without_a_valid_item_fails_and_each_item_says_why(
    service: Service, form: str, s3: str, bucket: Path
) -> None:
    job = send(service, form, [value for value, _, _ in WAYS], s3, bucket)
    answer(service, job["id"])
    done = service.http.get(job["urls"]["self"]).json()
    assert (done["status"], done["counts"]["failed"]) == ("failed", 10)
    said = [result["error"]["detail"] for result in done["results"]]
    assert all(sentence in detail for (_, _, sentence), detail in zip(WAYS, said, strict=True))
    assert done["usage"] is None
    assert events_of(service, job) == {"job.completed", "job.failed"}


@pytest.mark.parametrize("asked", [None, "refuse"])
def test_bad_item_refuses_the_job_unless_told_otherwise(service: Service, asked: str | None) -> None:
    head = {"metadata": {"a": "b"}} | ({"invalid_items": asked} if asked else {})
    for value, code, said in WAYS:
        items = [{"question": "Who?", "context": "Ada."}, value]
        body = b"\n".join(map(orjson.dumps, [head, *items]))
        refused = [
            service.http.post("/v1/jobs", json=head | {"items": items}),
            service.http.post("/v1/jobs", content=body, headers=LINES),
        ]
        assert [(each.status_code // 100, each.json()["code"]) for each in refused] == [(4, code)] * 2
        assert "line 3" in refused[1].json()["detail"]
        assert said in refused[1].json()["detail"]
    assert service.http.get("/v1/jobs").json()["data"] == []
    assert not list(service.bench.settings.files_root.glob("job_*"))


def test_input_with_a_bad_line_fails_as_a_whole_if_it_is_to_be_refused(service: Service, s3: str, bucket: Path) -> None:
    put(bucket / "in", b'{"question": "Who?", "context": "Ada."}\n{torn\n')
    asked = {"input_url": f"{s3}/in", "model": VERSION, "invalid_items": "refuse"}
    job = service.http.post("/v1/jobs", json=asked).json()
    read(service, job["id"])
    done = service.http.get(job["urls"]["self"]).json()
    assert (done["status"], done["error"]["code"]) == ("failed", "input_failed")
    assert done["error"]["detail"].startswith("line 2 is not JSON")


@pytest.mark.parametrize("point", ["submit.payloads_written", "submit.accepted"])
def test_api_and_keeper_killed_in_between_lose_and_repeat_nothing(service: Service, point: str) -> None:
    items = values(1000)
    body = orjson.dumps({"invalid_items": "fail", "contexts": SHARED, "items": items})
    assert run_armed(service, point, SEND, body) == -signal.SIGKILL
    headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}
    job = service.http.post("/v1/jobs", content=body, headers=headers).raise_for_status().json()
    assert [each["id"] for each in service.http.get("/v1/jobs").json()["data"]] == [job["id"]]
    assert run_armed(service, "feed.fed", FEED, b"", job["id"]) == -signal.SIGKILL
    answer(service, job["id"])
    lines = service.http.get(job["urls"]["results"], headers={"Accept": "application/x-ndjson"}).content
    require_each_in_its_place(lines.splitlines(), 1000, "item")
    page = service.http.get(job["urls"]["results"], params={"limit": 1000}).json()
    assert page["data"] == [orjson.loads(line) for line in lines.splitlines()]
    counts = service.http.get(job["urls"]["self"]).json()["counts"]
    assert (counts["succeeded"], counts["failed"]) == (990, 10)


def run_armed(service: Service, point: str, code: str, sent: bytes, *arguments: str) -> int:
    """Run a process that kills itself at a point; return how it ended."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, input=sent, env=armed(service.bench.settings, point), check=False, timeout=120
    ).returncode
