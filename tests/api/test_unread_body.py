"""Requests whose bodies are not read to their end, over real connections: the connection goes on, or says that not."""

import socket
from contextlib import closing
from pathlib import Path

import httpx2
import orjson
import pytest

from corelane.settings import Settings
from tests.api.conftest import Service
from tests.tools.waiting import eventually

MOST = 4096

LARGE = b"x" * (4 * 1024 * 1024)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings(**settings.model_dump(exclude_unset=True), max_body_bytes=MOST, http2=True)


def job_of(size: int) -> bytes:
    """Return the body of a job, so many bytes long."""
    body = orjson.dumps({"question": "q", "context": "c"})
    return body[:-2] + b"c" * (size - len(body)) + body[-2:]


class Wire:
    """A connection as a careless client has it."""

    def __init__(self, service: Service) -> None:
        host, port = service.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), 20)
        self._file = self.socket.makefile("rb")

    def ask(self, method: str, path: str, *headers: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        head = "\r\n".join((f"{method} {path} HTTP/1.1", "Host: here", *headers, "", ""))
        self.socket.sendall(head.encode() + body)
        return self.answer(has_body=method != "HEAD")

    def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().strip().decode():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        length = int(headers.get("content-length", 0)) if has_body else 0
        return status, headers, self._file.read(length)

    def is_open(self) -> bool:
        return self.ask("GET", "/livez")[0] == 200

    def close(self) -> None:
        self._file.close()
        self.socket.close()


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(("size", "status"), [(MOST, 202), (MOST + 1, 413)])
def test_body_at_the_limit_is_taken_and_one_byte_more_is_not_and_the_connection_goes_on(
    service: Service, size: int, status: int
) -> None:
    body = job_of(size)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1000], body[1000:])) + b"0\r\n\r\n"
    with closing(Wire(service)) as wire:
        found, headers, _ = wire.ask("POST", "/v1/jobs", JSON, f"Content-Length: {size}", body=body)
        assert (found, headers.get("connection")) == (status, None)
        found, headers, _ = wire.ask("POST", "/v1/jobs", JSON, "Transfer-Encoding: chunked", body=chunks)
        assert (found, headers.get("connection")) == (status, None)
        assert wire.is_open()


@pytest.mark.parametrize("size", [MOST, MOST + 1])
def test_client_that_waits_to_be_told_to_go_on_is_told(service: Service, size: int) -> None:
    with closing(Wire(service)) as wire:
        head = (JSON, f"Content-Length: {size}", "Expect: 100-continue")
        assert wire.ask("POST", "/v1/jobs", *head)[0] == 100
        wire.socket.sendall(job_of(size))
        assert wire.answer()[0] == (202 if size == MOST else 413)
        assert wire.is_open()


def test_head_with_a_body_leaves_the_connection_usable(service: Service) -> None:
    with closing(Wire(service)) as wire:
        assert wire.ask("HEAD", "/v1/jobs", JSON, "Content-Length: 5", body=b"hello")[0] == 200
        assert wire.is_open()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/files", "/nowhere"])
def test_large_body_that_is_not_wanted_is_answered_whole_and_the_connection_given_up(
    service: Service, path: str
) -> None:
    with closing(Wire(service)) as wire:
        status, headers, body = wire.ask("POST", path, JSON, f"Content-Length: {len(LARGE)}", body=LARGE)
        assert headers["connection"] == "close"
        assert orjson.loads(body)["status"] == status
        assert status in (404, 413, 422)


def test_sender_that_breaks_off_leaves_nothing_and_harms_nobody(
    service: Service, settings: Settings, tmp_path: Path
) -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + LARGE
    )
    lines = orjson.dumps({"question": "q", "context": "c"}) + b"\n"
    for path, kind, body in (
        ("/v1/files", "multipart/form-data; boundary=b", form),
        ("/v1/jobs", "application/x-ndjson", lines * 1000),
        ("/v1/jobs", "application/json", job_of(MOST)),
    ):
        with closing(Wire(service)) as wire:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: {kind}\r\nContent-Length: {len(body) + 9}\r\n\r\n"
            )
            wire.socket.sendall(head.encode() + body)

    def is_clean() -> bool:
        assert [path for path in tmp_path.rglob("*") if path.name.startswith(("file_", "job_"))] == []
        return True

    eventually(is_clean)
    assert service.http.get("/livez").status_code == 200
    assert service.http.get("/v1/jobs").json()["data"] == []
    assert service.http.get("/v1/files").json()["data"] == []


@pytest.mark.parametrize("size", [MOST + 1, len(LARGE)])
def test_over_http_2_a_refused_body_harms_no_other_stream(service: Service, size: int) -> None:
    headers = {"Content-Type": "application/json"}
    with httpx2.Client(base_url=service.url, http1=False, http2=True, timeout=20) as client:
        for _ in range(3):
            assert client.post("/v1/jobs", content=b"x" * size, headers=headers).status_code == 413
            pieces = iter([b"x" * 1000] * (size // 1000 + 1))
            assert client.post("/v1/jobs", content=pieces, headers=headers).status_code == 413
            assert client.get("/livez").status_code == 200
            taken = client.post("/v1/jobs", content=job_of(MOST), headers=headers)
            assert (taken.status_code, taken.http_version) == (202, "HTTP/2")
