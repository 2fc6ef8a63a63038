"""Bad input: each case a clear 4xx problem, and the service none the worse for it."""

import json
from pathlib import Path

import pytest

from tests.tools.fleet import Fleet
from tests.tools.waiting import eventually

OK = {"question": "Who?", "context": "Ada."}


def items(count: int) -> bytes:
    return json.dumps({"items": [{"question": "q", "context": "c"}] * count}).encode()


CASES = {
    "blank question": (json.dumps({**OK, "question": " \t"}).encode(), 422, "white space"),
    "10 MB body": (b'{"question": "Who?", "context": "' + b"a" * 10_000_000 + b'"}', 413, "CORELANE_MAX_BODY_BYTES"),
    "lone surrogate": (b'{"question": "\\ud800", "context": "c"}', 422, "JSON"),
    "number as question": (b'{"question": 3, "context": "c"}', 422, "question"),
    "Infinity": (b'{"question": "q", "context": "c", "options": {"doc_stride": Infinity}}', 422, "JSON"),
    "min_precision=1": (json.dumps({**OK, "options": {"min_precision": 1}}).encode(), 422, "min_precision"),
    "two rules for null": (
        json.dumps({**OK, "options": {"min_precision": 0.9, "no_answer_threshold": 1}}).encode(),
        422,
        "no_answer_threshold",
    ),
    "unknown unit of offsets": (json.dumps({**OK, "options": {"offsets": ["utf32"]}}).encode(), 422, "utf16"),
    "webhook to loopback port": (
        json.dumps({**OK, "webhook": {"url": "http://10.1.2.3/x"}}).encode(),
        422,
        "CORELANE_WEBHOOK_ALLOWED_NETWORKS",
    ),
    "deep nesting": (b"[" * 100_000, 4, ""),
    "unknown context_id": (b'{"items": [{"question": "q", "context_id": "p"}]}', 422, "'p'"),
    "context and context_id": (
        b'{"items": [{"question": "q", "context": "c", "context_id": "p"}], "contexts": {"p": "c"}}',
        422,
        "items.0",
    ),
    "blank shared context": (b'{"items": [{"question": "q", "context_id": "p"}], "contexts": {"p": " "}}', 422, "p"),
    "expires_in_s=0": (json.dumps({**OK, "expires_in_s": 0}).encode(), 422, "expires_in_s"),
    "window of a job in JSON": (json.dumps({**OK, "results_window": 1000}).encode(), 422, "results_window"),
}

LINE = json.dumps(OK).encode() + b"\n"
LONG = b'{"question": "q", "context": "' + b"a" * 10_000_000 + b'"}\n'

LINES_CASES = {
    "empty body": (b"", 422, "no lines"),
    "blank lines": (b"\n \n\r\n", 422, "no lines"),
    "head alone": (b'{"model": "default"}\n', 422, "a head and no items"),
    "a job in JSON": (items(2), 422, "line 1: items"),
    "context and context_id": (
        b'{"contexts": {"p": "c"}}\n{"question": "q", "context": "c", "context_id": "p"}\n',
        422,
        "line 2: ",
    ),
    "blank shared context": (b'{"contexts": {"p": " "}}\n' + LINE, 422, "line 1: contexts.p"),
    "head after the items": (LINE + b'{"model": "default"}\n', 422, "line 2: "),
    "two heads": (b'{"model": "default"}\n{"model": "default"}\n' + LINE, 422, "line 2: "),
    "misspelt head": (b'{"modle": "default"}\n' + LINE, 422, "line 1: modle"),
    "misspelt option": (b'{"options": {"topk": 2}}\n' + LINE, 422, "it is `top_k`"),
    "NaN": (b'{"expires_in_s": NaN}\n' + LINE, 422, "line 1 is not JSON"),
    "window too small": (b'{"results_window": 999}\n' + LINE, 422, "line 1: results_window"),
    "unknown model": (b'{"model": "gpt-17"}\n' + LINE, 422, "gpt-17"),
    "webhook to a private network": (
        b'{"webhook": {"url": "http://10.1.2.3/x"}}\n' + LINE,
        422,
        "CORELANE_WEBHOOK_ALLOWED_NETWORKS",
    ),
    "long context": (LINE + json.dumps({**OK, "context": "a" * 2_000_001}).encode(), 413, "line 2: the context"),
    "long line": (LINE + LONG, 413, "CORELANE_MAX_BODY_BYTES|line 2"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_body_is_a_clear_problem(fleet: Fleet, case: tuple[bytes, int, str]) -> None:
    check_refused(fleet, "application/json", case)


@pytest.mark.parametrize("case", LINES_CASES.values(), ids=LINES_CASES.keys())
def test_bad_lines_are_a_clear_problem_and_leave_no_file(fleet: Fleet, case: tuple[bytes, int, str]) -> None:
    before = files(fleet)
    check_refused(fleet, "application/x-ndjson", case)
    assert files(fleet) <= before


def files(fleet: Fleet) -> set[str]:
    return {path.name for path in fleet.data.glob("files/*")}


def check_refused(fleet: Fleet, content_type: str, case: tuple[bytes, int, str]) -> None:
    body, status, word = case
    with fleet.http() as http:
        response = http.post("/v1/jobs", content=body, headers={"Content-Type": content_type})
    assert str(response.status_code).startswith(str(status))
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert {"type", "title", "status", "detail", "code"} <= set(problem)
    assert problem["type"] == f"urn:corelane:problem:{problem['code']}"
    assert any(part in response.text for part in word.split("|"))
    assert "aaaaaaaa" not in response.text


@pytest.mark.parametrize("query", ["", "before=0", "before=-1", "before=x", "before=1.5"])
def test_bad_bound_of_dropping_is_refused(fleet: Fleet, query: str) -> None:
    with fleet.http() as http:
        job = http.post("/v1/jobs", json=OK).json()
        refused = http.delete(f"{job['urls']['results']}?{query}")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")


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
        eventually(lambda: http.get("/livez").status_code == 200)
    assert resident_mb(api) < before + 60


def test_memory_of_the_api_does_not_grow_with_the_size_of_a_job_of_lines(fleet: Fleet) -> None:
    [api] = [pid for pid in children(fleet.process.pid) if "api" in command(pid)]
    line = json.dumps({**OK, "context": "a" * 10_000}).encode() + b"\n"

    def send(count: int) -> None:
        with fleet.http() as http:
            body = (line * 100 if n < count else b"{broken" for n in range(count + 1))
            refused = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/x-ndjson"})
        assert (refused.status_code, f"line {100 * count + 1} " in refused.text) == (422, True)

    send(10)
    before = resident_mb(api)
    send(150)
    assert resident_mb(api) < before + 60
    assert not [name for name in files(fleet) if (fleet.data / "files" / name).stat().st_size > 100_000_000]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:  # it ended since it was listed
        return []


def resident_mb(pid: int) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
