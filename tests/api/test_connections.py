"""Connections that ask too much or take nothing, on real sockets: what Hypercorn bounds with our configuration.

What it does not bound is nginx's work: ``tests/api/test_nginx.py``.
"""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx2
import pytest
import redis

from corelane.settings import Settings
from tests.api.conftest import Service, run_service
from tests.api.wires import connect, connections, request
from tests.tools.waiting import eventually

ONE = {"question": "Who?", "context": "Ada."}

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"

UPGRADE = (
    b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings:\r\n\r\n"
)


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.serve.SEND_TIMEOUT_S", 0.5)


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str, _limits: None) -> Iterator[Service]:
    yield from run_service(settings, raw, bell, keep_alive_s=1)


def is_alone(service: Service) -> bool:
    """Whether no connection is left."""
    return not connections(service)


def statuses(service: Service) -> list[str]:
    return [job["status"] for job in service.http.get("/v1/jobs").json()["data"]]


def take_nothing(service: Service) -> socket.socket:
    """Return a caller that asks for more than buffers hold, and reads the first answer alone."""
    host, port = service.url.removeprefix("http://").split(":")
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.connect((host, int(port)))
    caller.sendall(request("GET", "/livez"))
    assert caller.recv(1000).startswith(b"HTTP/1.1 200")
    caller.sendall(request("GET", "/docs/swagger-ui-bundle.js") * 100)
    return caller


@pytest.mark.parametrize("sent", [b"", b"GET /livez HT"], ids=["nothing", "half"])
def test_connection_on_which_no_whole_head_comes_is_closed(service: Service, sent: bytes) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(sent)
        assert caller.recv(1) == b""
    eventually(lambda: is_alone(service))


def test_head_that_is_too_long_is_refused_and_the_connection_closed(service: Service) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(b"GET /livez HTTP/1.1\r\nA: " + b"a" * 70_000)
        assert caller.makefile("rb").read().startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
    ids=["two lengths", "other coding", "blank before colon", "two hosts"],
)
def test_request_that_could_be_read_in_two_ways_is_refused_and_what_follows_is_not_served(
    service: Service, sent: bytes
) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(sent + request("GET", "/livez"))
        told = caller.makefile("rb").read()
    assert [line.split()[1] for line in told.splitlines() if line.startswith(b"HTTP/")] in ([b"400"], [b"501"])


def test_caller_who_takes_nothing_of_the_answers_is_cut_off(service: Service) -> None:
    with closing(take_nothing(service)):
        eventually(lambda: is_alone(service))


def test_stop_does_not_wait_for_a_caller_who_takes_nothing(
    settings: Settings, raw: redis.Redis, bell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.serve.SEND_TIMEOUT_S", 600.0)
    running = run_service(settings, raw, bell)
    with closing(take_nothing(next(running))):
        # Its end stops the service, and fails if that takes a minute.
        assert list(running) == []


@pytest.mark.parametrize("part", [30, -1], ids=["head", "body"])
def test_half_a_request_leaves_nothing_behind(service: Service, part: int) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(request("POST", "/v1/answers", ONE)[:part])
    eventually(lambda: is_alone(service))
    assert statuses(service) == []


def test_requests_one_after_the_other_are_answered_without_end_on_one_connection(service: Service) -> None:
    with closing(connect(service)) as caller:
        answers = caller.makefile("rb")
        for _ in range(600):
            caller.sendall(request("GET", "/livez") * 2)
            for _ in range(2):
                length = 0
                assert answers.readline().startswith(b"HTTP/1.1 200")
                while (line := answers.readline().strip().lower()) != b"":
                    assert not line.startswith(b"connection")
                    length = int(line.split()[1]) if line.startswith(b"content-length") else length
                assert len(answers.read(length)) == length > 0


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (PREFACE, [b"505"]),
        (request("GET", "/livez") + PREFACE, [b"200", b"505"]),
        (UPGRADE + request("GET", "/livez") + PREFACE, [b"200", b"200", b"505"]),
        (UPGRADE.replace(b"h2c", b"H2C ").replace(b"HTTP/1.1", b"HTTP/1.0") + PREFACE, [b"200"]),
    ],
    ids=["preface", "preface after a request", "upgrade", "upgrade by 1.0"],
)
def test_http_2_is_refused_unless_it_is_on(service: Service, sent: bytes, statuses: list[bytes]) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(sent)
        told = caller.makefile("rb").read()
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == statuses
    eventually(lambda: is_alone(service))


def test_response_comes_whole_in_one_packet_and_the_head_of_a_stream_at_once(service: Service) -> None:
    with closing(connect(service)) as caller:
        for path in ("/livez", "/nothing"):
            caller.sendall(request("GET", path))
            head, _, body = caller.recv(65536).partition(b"\r\n\r\n")
            assert len(body) == int(re.findall(rb"content-length: (\d+)", head)[0])
        job = service.http.post("/v1/jobs", json=ONE).json()["id"]
        caller.sendall(request("GET", f"/v1/jobs/{job}/results", None, "Accept: application/x-ndjson"))
        assert caller.recv(65536).endswith(b"\r\n\r\n")


def test_connection_over_http_2_goes_on_after_a_thousand_requests(
    settings: Settings, raw: redis.Redis, bell: str
) -> None:
    async def ask(service: Service) -> None:
        async with httpx2.AsyncClient(base_url=service.url, http1=False, http2=True, timeout=20) as caller:
            for _ in range(220):
                answers = await asyncio.gather(*(caller.get("/docs") for _ in range(5)))
                assert {(answer.status_code, answer.http_version) for answer in answers} == {(200, "HTTP/2")}
            assert connections(service).total() == 1

    for service in run_service(settings.model_copy(update={"http2": True}), raw, bell):
        asyncio.run(ask(service))
