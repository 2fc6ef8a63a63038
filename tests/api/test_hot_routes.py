"""The hot routes: what each kind of request is answered, whatever it has that is unusual or wrong."""

import asyncio
import tracemalloc
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starlette.types import Message

from api.requests import PlainRequest
from tests.api.conftest import Service
from tests.api.office import ONE
from tests.api.test_jobs import core_of
from tests.corelane.store_bench import answer_all
from tests.tools.waiting import eventually

JSON = {"content-type": "application/json"}
BODY = b'{"question": "Who wrote it?", "context": "Ada wrote it."}'
NO_JOB = "job_0" + "0" * 26


@dataclass(frozen=True)
class Call:
    """One request, and the status of its answer."""

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
    "a wait without an end": Call("GET", f"/v1/jobs/{NO_JOB}?wait=inf", 422),
    "a wait below 0": Call("GET", f"/v1/jobs/{NO_JOB}?wait=-1", 422),
    "an unknown parameter": Call("POST", "/v1/jobs?wiat=1", 422, BODY),
    "a key": Call("POST", "/v1/jobs", 202, BODY, JSON | {"idempotency-key": "a b~#"}),
    "a key that is too long": Call("POST", "/v1/jobs", 422, BODY, JSON | {"idempotency-key": "a" * 256}),
    "an empty key": Call("POST", "/v1/jobs", 422, BODY, JSON | {"idempotency-key": ""}),
    "no body": Call("POST", "/v1/jobs", 422, b""),
    "broken JSON": Call("POST", "/v1/jobs", 422, BODY[:-1]),
    "invalid UTF-8": Call("POST", "/v1/jobs", 422, b'{"question": "\xff", "context": "c"}'),
    "a number beyond JSON": Call("POST", "/v1/jobs", 422, BODY[:-1] + b', "expires_in_s": NaN}'),
    "lines": Call("POST", "/v1/jobs", 202, BODY, {"content-type": "application/x-ndjson"}),
    "an answer that takes longer": Call("POST", "/v1/answers?wait=0.001", 202, BODY),
    "an answer that takes longer than preferred": Call("POST", "/v1/answers", 202, BODY, JSON | {"prefer": "wait=0"}),
    "an answer and an unknown parameter": Call("POST", "/v1/answers?a=1", 422, BODY),
    "an answer to broken JSON": Call("POST", "/v1/answers", 422, BODY[:-1]),
    "a job that is not there": Call("GET", f"/v1/jobs/{NO_JOB}", 404),
    "a name that is not there": Call("GET", "/v1/jobs/none", 404),
    "no id": Call("GET", "/v1/jobs/", 200),
    "an unknown parameter of a job": Call("GET", f"/v1/jobs/{NO_JOB}?a=1", 422),
    "null": Call("POST", "/v1/jobs", 422, b"null"),
    "faults of all parts": Call("POST", "/v1/jobs?wait=soon", 422, b"[1]"),
    "two faults of a job": Call("GET", f"/v1/jobs/{'a' * 201}?wait=x", 422),
    "a model in the address": Call("POST", "/v1/answers?wait=0.001&model=default", 202, BODY),
    "a model that is too long": Call("POST", f"/v1/answers?model={'m' * 201}", 422, BODY),
    "a job under a name": Call("PUT", "/v1/jobs/mine?wait=0", 202, BODY),
    "a name like an id": Call("PUT", "/v1/jobs/job_x", 422, BODY),
    "a named job": Call("GET", "/v1/jobs/mine", 200),
    "a retry of a job that goes on": Call("POST", "/v1/jobs/mine/retry", 409),
}

#: The beginnings of what the refused are told.
TOLD = {
    "a wait that is too long": "query.wait: it must be at most 86400.0",
    "an unknown parameter": "query.wiat: there is no such parameter, did you mean `wait`? (there are `wait`)",
    "a key that is too long": "header.Idempotency-Key: at most 255 characters are allowed",
    "an empty key": "header.Idempotency-Key: at least 1 character is wanted",
    "broken JSON": "body: the body is not JSON in UTF-8: unexpected end of data",
    "invalid UTF-8": "body: the body is not JSON in UTF-8: str is not valid UTF-8",
    "a number beyond JSON": "body: the body is not JSON in UTF-8: unexpected character",
    "an answer and an unknown parameter": "query.a: there is no such parameter (there are `model`, `wait`)",
    "an answer to broken JSON": "body: the body is not JSON in UTF-8: unexpected end of data",
    "an unknown parameter of a job": "query.a: there is no such parameter (there are `wait`)",
    "faults of all parts": "query.wait: a number is wanted (and 1 more)",
    "a model that is too long": "query.model: at most 200",
    "alive, changed": "this path does not take this method",
    "a wait that is no number": "query.wait: a number is wanted",
    "no body": "body: this is required",
    "a job that is not there": "there is no job job_0000",
    "a name that is not there": "there is no job 'none'; ids look like job_0…",
    "null": "body: a JSON object is wanted",
    "two faults of a job": "path.job_id: at most 200 characters",
    "a name like an id": "a job's name has 1 to 128 letters",
    "a retry of a job that goes on": "job_0",
}


def test_a_call_of_a_hot_route_is_answered(service: Service) -> None:
    assert service.http.get("/livez").json() == {"status": "ok", "cores": None, "details": None}
    for name, call in CALLS.items():
        answer = service.http.request(
            call.method, call.path, content=call.content, headers=call.headers, follow_redirects=True
        )
        problem = answer.json()
        assert (name, answer.status_code) == (name, call.status)
        assert (name, problem.get("detail", "")[: len(TOLD.get(name, ""))]) == (name, TOLD.get(name, ""))
        if name in TOLD:
            assert (name, answer.headers["content-type"]) == (name, "application/problem+json")
        elif problem.get("object") == "job" and call.method == "POST":
            assert (name, answer.headers["location"]) == (name, f"/v1/jobs/{problem['id']}")


def test_a_question_is_answered_with_its_result(service: Service) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.http.post, "/v1/answers", content=BODY, headers=JSON)
        eventually(lambda: bool(service.bench.waiting()))
        answer_all(core_of(service))
        answered = waiting.result()
    assert (answered.status_code, answered.json()["status"]) == (200, "succeeded")
    assert answered.headers["preference-applied"] == "wait=60"


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

    request = PlainRequest({"type": "http", "headers": []}, receive)
    tracemalloc.start()
    try:
        body = asyncio.run(request.body())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert body == b"x" * size
    assert peak < 30 * size
