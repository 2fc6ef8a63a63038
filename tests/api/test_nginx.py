"""The configuration of nginx in docs/keys.md, as it stands there, in front of a service on real sockets."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import httpx2
import pytest

from benchmarks.nginx import NGINX, nginx_before
from corelane.settings import Settings
from tests.api.conftest import Service
from tests.api.wires import connect, connections, request

pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx: make nginx")

#: More than Hypercorn would bear at 1,024 files, of each kind.
IDLE, SLOW, CHUNKED = 1200, 100, 8

CHUNK = b"1\r\nx\r\n"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "required", "trusted_hops": 1, "http2": True})


@pytest.fixture
def front(service: Service) -> Iterator[Service]:
    """Run nginx in front of the service; yield the service as callers of nginx see it."""
    with nginx_before(service.url) as url, httpx2.Client(base_url=url, timeout=60) as http:
        yield replace(service, url=url, http=http)


def first_line(service: Service, sent: bytes) -> bytes:
    with closing(connect(service)) as caller:
        caller.sendall(sent)
        return caller.makefile("rb").readline()


def test_callers_without_a_key_who_hold_connections_shut_nobody_out_and_do_not_reach_the_api(
    front: Service, service: Service
) -> None:
    head = request("POST", "/v1/jobs").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with ExitStack() as stack:

        def callers(count: int, sent: bytes) -> list[socket.socket]:
            made = [stack.enter_context(closing(connect(front))) for _ in range(count)]
            for each in made:
                each.sendall(sent)
            return made

        callers(IDLE, b"")
        callers(SLOW, b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: ")
        chunked = callers(CHUNKED, head)
        chunked += callers(CHUNKED, head + b"1;" + b"a" * 100_000)
        for _ in range(20):
            for each in chunked[:CHUNKED]:
                each.sendall(CHUNK * 1000)
            for each in chunked[CHUNKED:]:
                each.sendall(b"a" * 10_000)
            assert front.http.get("/livez").status_code == 200
        # Those that nginx keeps for callers whose requests are whole.
        assert sum(connections(service).values()) <= 4


def test_request_for_an_upgrade_to_http_2_does_not_reach_the_api(front: Service, service: Service) -> None:
    asks = request("GET", "/livez", None, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: ")
    assert first_line(front, asks.replace(b"Content-Length: 0\r\n", b"")).startswith(b"HTTP/1.1 200")
    assert first_line(service, asks.replace(b"Content-Length: 0\r\n", b"")).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(
    ("sent", "through_nginx", "without"),
    [
        (request("get", "/livez"), b"400", b"200"),
        (b"\r\n" + request("GET", "/livez"), b"200", b"400"),
        (request("POST", "/v1/jobs", None, "Expect: 100-continue").replace(b"h: 0", b"h: 9"), b"100", b"100"),
        (request("POST", "/v1/jobs", None, "Transfer-Encoding: chunked") + b"0\r\n\r\n", b"400", b"401"),
    ],
    ids=["lower case", "empty line", "expects", "two lengths"],
)
def test_what_the_page_says_of_odd_requests_is_so(
    front: Service, service: Service, sent: bytes, through_nginx: bytes, without: bytes
) -> None:
    assert first_line(front, sent).split()[1] == through_nginx
    assert first_line(service, sent).split()[1] == without


def test_file_as_large_as_the_api_takes_passes(front: Service, settings: Settings) -> None:
    """Without a key, the API refuses it before it is read."""
    head = request("POST", "/v1/files").replace(b"h: 0", b"h: %d" % settings.max_file_bytes)
    assert {first_line(front, head.replace(b"files", each)).split()[1] for each in (b"files", b"batches")} == {b"401"}
    assert first_line(front, head.replace(b"/v1/files", b"/v1/jobs")).split()[1] == b"413"
