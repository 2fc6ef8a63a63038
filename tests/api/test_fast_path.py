"""The fast path answers as FastAPI does, and declines what FastAPI has to look at."""

import asyncio
import tracemalloc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message

from api import app as api_app
from api.middleware.edge import HEADERS
from api.middleware.fast_path import FastRequest
from corelane.settings import Settings
from tests.api.conftest import Service
from tests.api.office import ONE
from tests.api.test_jobs import core_of
from tests.corelane.store_bench import answer_all
from tests.tools.waiting import eventually

JSON = {"content-type": "application/json"}
BODY = b'{"question": "Who wrote it?", "context": "Ada wrote it."}'
NO_JOB = "job_0" + "0" * 26

#: What differs from one request to the next.
OWN = ("x-request-id", "location", "etag", "date")


@dataclass(frozen=True)
class Call:
    """One request, and how it is answered."""

    method: str
    path: str
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)


CALLS = {
    "alive": Call("GET", "/livez", 200),
    "alive, with a query": Call("GET", "/livez?a=1", 200),
    "alive, changed": Call("POST", "/livez", 405),
    "a job": Call("POST", "/v1/jobs", 202, BODY),
    "a job with a charset": Call("POST", "/v1/jobs", 202, BODY, {"content-type": "application/json; charset=utf-8"}),
    "a job that is waited for": Call("POST", "/v1/jobs", 202, BODY, JSON | {"prefer": "wait=0.0"}),
    "a wait in the query": Call("POST", "/v1/jobs?wait=0.001", 202, BODY),
    "a wait that is too long": Call("POST", "/v1/jobs?wait=99999", 422, BODY),
    "a wait that is no number": Call("POST", "/v1/jobs?wait=soon", 422, BODY),
    "an unknown parameter": Call("POST", "/v1/jobs?wiat=1", 422, BODY),
    "a key": Call("POST", "/v1/jobs", 202, BODY, JSON | {"idempotency-key": "a b~#"}),
    "a key that is too long": Call("POST", "/v1/jobs", 422, BODY, JSON | {"idempotency-key": "a" * 256}),
    "an empty key": Call("POST", "/v1/jobs", 422, BODY, JSON | {"idempotency-key": ""}),
    "no body": Call("POST", "/v1/jobs", 422, b""),
    "no content type": Call("POST", "/v1/jobs", 415, BODY, {}),
    "broken JSON": Call("POST", "/v1/jobs", 422, BODY[:-1]),
    "invalid UTF-8": Call("POST", "/v1/jobs", 422, b'{"question": "\xff", "context": "c"}'),
    "a number beyond JSON": Call("POST", "/v1/jobs", 422, BODY[:-1] + b', "expires_in_s": NaN}'),
    "an unknown field": Call("POST", "/v1/jobs", 422, BODY[:-1] + b', "colour": 1}'),
    "a list": Call("POST", "/v1/jobs", 422, b"[1]"),
    "an unknown model": Call("POST", "/v1/jobs", 422, BODY[:-1] + b', "model": "nobody"}'),
    "lines": Call("POST", "/v1/jobs", 202, BODY, {"content-type": "application/x-ndjson"}),
    "an answer that takes longer": Call("POST", "/v1/answers?wait=0.001", 202, BODY),
    "an answer that takes longer than preferred": Call("POST", "/v1/answers", 202, BODY, JSON | {"prefer": "wait=0"}),
    "an answer and an unknown parameter": Call("POST", "/v1/answers?a=1", 422, BODY),
    "an answer to broken JSON": Call("POST", "/v1/answers", 422, BODY[:-1]),
    "an answer to an unknown field": Call("POST", "/v1/answers", 422, BODY[:-1] + b', "labels": []}'),
    "an answer without a content type": Call("POST", "/v1/answers", 415, BODY, {}),
    "an answer of an unknown model": Call("POST", "/v1/answers", 422, BODY[:-1] + b', "model": "nobody"}'),
    "a job that is not there": Call("GET", f"/v1/jobs/{NO_JOB}", 404),
    "a name that is not there": Call("GET", "/v1/jobs/none", 404),
    "no id": Call("GET", "/v1/jobs/", 200),
    "an unknown parameter of a job": Call("GET", f"/v1/jobs/{NO_JOB}?a=1", 422),
}


def ways_and_none(monkeypatch: pytest.MonkeyPatch, settings: Settings, stack: ExitStack) -> list[TestClient]:
    """Return a client of the app as it is, and of one without the fast path."""
    with_it = api_app.create_app(settings)
    monkeypatch.setattr(api_app, "fast_routes", lambda *_: {})
    without = api_app.create_app(settings)
    return [stack.enter_context(TestClient(each, raise_server_exceptions=False)) for each in (with_it, without)]


@pytest.fixture
def both(settings: Settings, service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TestClient]]:
    """Yield a client of the app as it is, and of one without the fast path, beside a core that holds a model."""
    assert service.http.get("/livez").status_code == 200
    with ExitStack() as stack:
        yield ways_and_none(monkeypatch, settings, stack)


def headers_of(call: Call, number: int) -> dict[str, str]:
    """Return a request's headers; a key in them differs by client."""
    return {name: value.replace("#", str(number)) for name, value in call.headers.items()}


def told(response: httpx2.Response) -> tuple[int, dict[str, str], Any]:
    """Return what of a response must be the same for the same request."""
    headers = {name: value for name, value in response.headers.items() if name not in OWN}
    body = response.json()
    is_job = body.get("object") == "job"
    if is_job:
        headers.pop("content-length")
    return response.status_code, headers, sorted(body) if is_job else body | {"request_id": ""}


def test_a_request_is_answered_alike_with_and_without_the_fast_path(both: list[TestClient]) -> None:
    for name, call in CALLS.items():
        ours, theirs = (
            told(client.request(call.method, call.path, content=call.content, headers=headers_of(call, number)))
            for number, client in enumerate(both)
        )
        assert (name, ours) == (name, theirs)
        assert (name, ours[0]) == (name, call.status)


def test_a_question_is_answered_alike_with_and_without_the_fast_path(both: list[TestClient], service: Service) -> None:
    answers = []
    with ThreadPoolExecutor(1) as pool:
        for client in both:
            waiting = pool.submit(client.post, "/v1/answers", content=BODY, headers=JSON)
            eventually(lambda: bool(service.bench.waiting()))
            answer_all(core_of(service))
            answers.append(told(waiting.result()))
    ours, theirs = answers
    assert ours == theirs
    assert (ours[0], ours[2]["status"]) == (200, "succeeded")


def test_what_is_published_at_the_end_of_a_job_is_what_a_later_request_reads(service: Service) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            service.http.post, "/v1/jobs", json=ONE | {"metadata": {"ä": "\u2028"}}, headers={"Prefer": "wait=60"}
        )
        eventually(lambda: bool(service.bench.waiting()))
        answer_all(core_of(service))
        answered = waiting.result()
    job = answered.json()
    assert (answered.status_code, job["status"], job["metadata"]) == (200, "succeeded", {"ä": "\u2028"})
    assert service.http.get(job["urls"]["self"]).json() == job
    assert service.bench.raw.hget(f"cl:job:{{{job['id']}}}", "tell")


def test_body_that_comes_byte_by_byte_takes_no_more_memory_than_its_bytes() -> None:
    size = 100_000
    parts = iter(range(size - 1, -1, -1))

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x", "more_body": next(parts) > 0}

    app = FastAPI()
    app.state.app_state = None
    scope = {HEADERS: ([], {}), "path": "/v1/jobs", "query_string": b"", "app": app}
    asked = FastRequest(scope, receive)
    tracemalloc.start()
    try:
        assert asyncio.run(asked.read_body())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert asked.body == b"x" * size
    assert peak < 30 * size
