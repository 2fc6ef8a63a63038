"""Bad input: each case a clear 4xx problem, and the service none the worse for it."""

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Fleet, wait_for

OK = {"question": "Who?", "context": "Ada."}


def items(count: int) -> bytes:
    return json.dumps({"items": [{"question": "q", "context": "c"}] * count}).encode()


CASES = {
    "empty question": (json.dumps({**OK, "question": ""}).encode(), 422, "items.0.question|question"),
    "blank question": (json.dumps({**OK, "question": " \t"}).encode(), 422, "white space"),
    "empty context": (json.dumps({**OK, "context": ""}).encode(), 422, "context"),
    "no context": (b'{"question": "Who?"}', 422, "context"),
    "10 MB body": (b'{"question": "Who?", "context": "' + b"a" * 10_000_000 + b'"}', 413, "CORELANE_MAX_BODY_BYTES"),
    "invalid UTF-8": (b'{"question": "Who?", "context": "\xff\xfe"}', 422, "UTF-8|JSON"),
    "not JSON": (b"question=Who", 422, "JSON"),
    "lone surrogate": (b'{"question": "\\ud800", "context": "c"}', 422, "JSON"),
    "unknown model": (json.dumps({**OK, "model": "gpt-17"}).encode(), 422, "gpt-17"),
    "10,001 items": (items(10_001), 413, "10,001 items"),
    "no items": (b'{"items": []}', 422, "items"),
    "wrong types": (b'{"items": {"question": 3, "context": []}}', 422, "items"),
    "number as question": (b'{"question": 3, "context": "c"}', 422, "question"),
    "top_k=0": (json.dumps({**OK, "options": {"top_k": 0}}).encode(), 422, "top_k"),
    "NaN": (b'{"question": "q", "context": "c", "options": {"no_answer_threshold": NaN}}', 422, "JSON"),
    "Infinity": (b'{"question": "q", "context": "c", "options": {"doc_stride": Infinity}}', 422, "JSON"),
    "misspelt option": (json.dumps({**OK, "options": {"topk": 2}}).encode(), 422, "topk"),
    "webhook to loopback port": (
        json.dumps({**OK, "webhook": {"url": "http://10.1.2.3/x"}}).encode(),
        422,
        "CORELANE_WEBHOOK_ALLOWED_NETWORKS",
    ),
    "deep nesting": (b"[" * 100_000, 4, ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_body_is_a_clear_problem(fleet: Fleet, case: tuple[bytes, int, str]) -> None:
    body, status, word = case
    with fleet.http() as http:
        response = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert str(response.status_code).startswith(str(status))
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert {"type", "title", "status", "detail", "code"} <= set(problem)
    assert problem["type"] == f"urn:corelane:problem:{problem['code']}"
    assert any(part in response.text for part in word.split("|"))
    assert "aaaaaaaa" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/jobs/job_00000000000000000000000000", 404),
        ("GET", "/v1/jobs/nonsense", 404),
        ("GET", "/v1/jobs/job_0%7B%7D/results", 404),
        ("POST", "/v1/jobs/job_00000000000000000000000000/cancel", 404),
        ("GET", "/v1/jobs/job_000000000000000000000000000/results", 404),
        ("GET", "/nowhere", 404),
        ("DELETE", "/v1/cores", 405),
    ],
)
def test_wrong_address_is_a_problem_too(fleet: Fleet, method: str, path: str, status: int) -> None:
    with fleet.http() as http:
        response = http.request(method, path)
    assert response.status_code == status
    assert response.json()["status"] == status


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "after=-1", "after=x", "after=" + "9" * 30])
def test_bad_page_is_refused(fleet: Fleet, query: str) -> None:
    with fleet.http() as http:
        job = http.post("/v1/jobs", json=OK).json()
        assert http.get(f"{job['urls']['results']}?{query}").status_code == 422


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "x"])
def test_bad_wait_is_refused(fleet: Fleet, wait: str) -> None:
    with fleet.http() as http:
        job = http.post("/v1/jobs", json=OK).json()
        assert http.get(job["urls"]["self"], params={"wait": wait}).status_code == 422


def test_memory_of_the_api_does_not_grow_with_bad_input(fleet: Fleet) -> None:
    [api] = [pid for pid in children(fleet.process.pid) if "api" in command(pid)]
    body, _, _ = CASES["10 MB body"]
    with fleet.http() as http:

        def burst(count: int) -> None:
            for _ in range(count):
                http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
                http.post("/v1/jobs", content=items(10_001), headers={"Content-Type": "application/json"})

        burst(5)
        before = resident_mb(api)
        burst(25)
        wait_for(lambda: http.get("/livez").status_code == 200)
    assert resident_mb(api) < before + 60


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def resident_mb(pid: int) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
