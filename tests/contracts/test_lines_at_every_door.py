"""What lines promise at each door: in the body of a job, in the file of a batch, and in an input at a URL."""

import gzip
import re
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from httpx2 import StreamError
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from corelane.settings import Settings
from corelane.submitting.large_bodies import MOST_MARKS
from corelane.submitting.ndjson import BYTE_ORDER_MARK, cut_lines
from tests.api.conftest import Service, run_service
from tests.api.test_invalid_items import answer, bucket, read
from tests.corelane.store_bench import VERSION
from tests.plugins.files.batch_bench import BatchBench
from tests.tools.s3 import put
from tests.tools.waiting import eventually

__all__ = ["bucket"]

LINES = {"Content-Type": "application/x-ndjson"}
DOORS = ["body", "batch", "url"]
MOST_BYTES = 1_000_000

#: A line as JSON or as bytes, and what is said of it if it fails.
Line = tuple[Any, tuple[str, str] | None]

#: Lines of one content, each of which harms no other. Blank ones are counted, and have no outcome.
HOSTILE: dict[str, Line] = {
    "good": ({"id": "a"}, None),
    "blank": (b"", None),
    "white space": (b" \t\r", None),
    "not UTF-8": (b'{"question": "\xff"}', ("invalid_input", "is not JSON in UTF-8")),
    "lone surrogate": (b'{"question": "\\ud800"}', ("invalid_input", "is not JSON in UTF-8")),
    "torn": (b'{"question": "Wh', ("invalid_input", "is not JSON in UTF-8")),
    "two values": (b"{} {}", ("invalid_input", "is not JSON in UTF-8")),
    "not an object": (b"[1]", ("invalid_input", "is not a JSON object")),
    "null": (b"null", ("invalid_input", "is not a JSON object")),
    "nested too deep": (b"[" * 100_000, ("invalid_input", "is not JSON in UTF-8")),
    "too many brackets": (b"[]," * (MOST_MARKS + 1), ("too_large", "brackets and colons")),
    "too long": (b'"' + b"x" * MOST_BYTES + b'"', ("too_large", f"more than {MOST_BYTES:,} bytes")),
    "long white space": (b" " * (MOST_BYTES + 1), None),
    "mark in the middle": (BYTE_ORDER_MARK + b"{}", ("invalid_input", "is not JSON in UTF-8")),
    "carriage return": ({"id": "b", "end": "\r"}, None),
    "same id": ({"id": "a"}, ("same id", "")),
    "no question": ({"id": "c", "question": " "}, ("invalid_input", "question")),
    "unknown field": ({"id": "d", "colour": "red"}, ("invalid_input", "colour: there is no such field")),
    "long question": ({"id": "e", "question": "x" * 400}, ("too_large", "the question is longer than 300 characters")),
    "last, without an end": ({"id": "f"}, None),
}
SAME = {
    "body": ("invalid_input", "has the id 'a' of line 2"),
    "batch": ("duplicate_custom_id", "line 1 has the same"),
    "url": ("invalid_input", "has the id 'a' of line 1"),
}


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str, s3: str, httpserver: HTTPServer) -> Iterator[Service]:
    changes: dict[str, Any] = {
        "input_urls": (f"{s3}/", httpserver.url_for("/")),
        "reference_allowed_networks": (ip_network("127.0.0.0/8"),),
        "max_question_chars": 300,
        "max_body_bytes": MOST_BYTES,
    }
    yield from run_service(settings.model_copy(update=changes), raw, bell)


def written(door: str, line: Any) -> bytes:
    """Return a line as it is sent at a door."""
    if isinstance(line, bytes):
        return line
    item = {"question": "Who?", "context": "Ada."} | line
    end = item.pop("end", "").encode()
    if door == "batch":
        item = {"custom_id": item.pop("id"), "method": "POST", "url": "/v1/answers", "body": item}
    return orjson.dumps(item) + end


def outcomes(service: Service, door: str, content: bytes, s3: str, bucket: Path) -> list[tuple[str, Any, int, str]]:
    """Send lines at a door, and answer them; return each one's code, id, number if it failed, and sentence."""
    if door == "batch":
        return outcomes_of_batch(service, content)
    if door == "body":
        content = BYTE_ORDER_MARK + b'{"invalid_items": "fail"}\n' + content
        pieces = (content[at : at + 999] for at in range(0, len(content), 999))
        job = service.http.post("/v1/jobs", content=pieces, headers=LINES).raise_for_status().json()["id"]
    else:
        put(bucket / "in", content)
        asked = {"input_url": f"{s3}/in", "model": VERSION}
        job = service.http.post("/v1/jobs", json=asked).raise_for_status().json()["id"]
        read(service, job)
    answer(service, job)
    found = []
    for result in service.bench.results(job):
        error = result.get("error") or {"code": "", "detail": ""}
        number = re.match(r"line (\d+)", error["detail"])
        found.append((error["code"], result["id"], int(number[1]) - (door == "body") if number else 0, error["detail"]))
    return found


def outcomes_of_batch(service: Service, content: bytes) -> list[tuple[str, Any, int, str]]:
    bench = BatchBench(service.bench.settings, service.bench.raw, service.bench.bell)
    batch, core = bench.begin(content), bench.core("a/0")
    bench.steps()
    while bench.batch(batch).status != "completed":
        bench.answer(core)
        bench.steps()
    done = bench.batch(batch)
    found = sorted(bench.lines(done.output_file_id) + bench.lines(done.error_file_id), key=lambda each: each["line"])
    errors = [each["error"] or {"code": "", "message": ""} for each in found]
    facts = [(each["custom_id"], each["line"] if each["error"] else 0) for each in found]
    return [(error["code"], *fact, error["message"]) for error, fact in zip(errors, facts, strict=True)]


@pytest.mark.parametrize("door", DOORS)
def test_each_line_has_one_outcome_by_its_number_and_harms_no_other(
    service: Service, door: str, s3: str, bucket: Path
) -> None:
    mark = b"" if door == "body" else BYTE_ORDER_MARK
    content = mark + b"\n".join(written(door, line) for line, _ in HOSTILE.values())
    expected = []
    for number, (line, said) in enumerate(HOSTILE.values(), 1):
        if not isinstance(line, bytes) or line.strip():
            code, sentence = (SAME[door] if said == ("same id", "") else said) or ("", "")
            expected.append((code, None if isinstance(line, bytes) else line["id"], number if code else 0, sentence))
    found = outcomes(service, door, content, s3, bucket)
    for (*facts, detail), (*wanted, sentence) in zip(found, expected, strict=True):
        assert facts == wanted, detail
        assert sentence in detail


@pytest.mark.parametrize("door", ["body", "url"])
def test_packed_lines_are_those_that_were_packed(service: Service, door: str, s3: str, bucket: Path) -> None:
    packed = gzip.compress(b"".join(written(door, {"id": f"i{n}"}) + b"\r\n" for n in range(100)))
    if door == "body":
        job = service.http.post("/v1/jobs", content=packed, headers=LINES | {"Content-Encoding": "gzip"})
    else:
        put(bucket / "in.gz", packed)
        job = service.http.post("/v1/jobs", json={"input_url": f"{s3}/in.gz", "model": VERSION})
        read(service, job.raise_for_status().json()["id"])
    answer(service, job.json()["id"])
    assert [each["id"] for each in service.bench.results(job.json()["id"])] == [f"i{n}" for n in range(100)]


def test_body_that_breaks_off_in_a_line_leaves_nothing(service: Service) -> None:
    def broken() -> Iterator[bytes]:
        yield written("body", {"id": "a"}) + b'\n{"question": "Wh'
        raise ConnectionError

    with pytest.raises((ConnectionError, StreamError)):
        service.http.post("/v1/jobs", content=broken(), headers=LINES)
    eventually(lambda: not list(service.bench.settings.files_root.glob("job_*")))
    assert service.http.get("/v1/jobs").json()["data"] == []


def test_input_that_breaks_off_in_a_line_is_read_again(service: Service, httpserver: HTTPServer) -> None:
    content = b"".join(written("url", {"id": f"i{n}"}) + b"\n" for n in range(100))
    ends = [len(content) // 2 + 5, len(content)]

    def serve(_: Request) -> Response:
        return Response(iter([content[: ends.pop(0)]]), headers={"Content-Length": str(len(content)), "ETag": '"one"'})

    httpserver.expect_request("/in").respond_with_handler(serve)
    asked = {"input_url": httpserver.url_for("/in"), "model": VERSION}
    job = service.http.post("/v1/jobs", json=asked).raise_for_status().json()["id"]
    read(service, job)
    assert service.bench.get(job).describe().model_dump()["input"]["error"]
    read(service, job)
    answer(service, job)
    assert [each["id"] for each in service.bench.results(job)] == [f"i{n}" for n in range(100)]


def test_long_line_is_not_held_and_its_neighbours_are_read() -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"a": 1}\n'
        for _ in range(1000):
            yield b"x" * 1000
        yield b"\n \n" + b" " * 10_000 + b"\nlast"

    found = list(cut_lines(pieces(), 400))
    assert [(each.number, each.text) for each in found] == [(1, b'{"a": 1}'), (2, None), (5, b"last")]


def test_blank_lines_are_counted_and_lines_after_them_have_their_number_and_end() -> None:
    blank = b"\n" * 1_000_000 + b" \t\r\n" * 1000
    found = list(cut_lines([b"a\n" + blank[:7], blank[7:] + b" b \n\n", b"c"], 100, 10, 5))
    end = 12 + len(blank)
    assert [(line.number, line.text, line.end) for line in found] == [
        (6, b"a", 12),
        (1_001_007, b"b ", end + 4),
        (1_001_009, b"c", end + 6),
    ]
