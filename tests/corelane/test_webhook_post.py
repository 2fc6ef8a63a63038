"""One attempt: over within its time, whatever the receiver does."""

import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.settings import Settings
from tests.tools.receivers import dripping, listener, post_event, receiver

QUICK = Settings(webhook_allowed_networks="127.0.0.0/8", webhook_timeout_s=0.6)

#: For attempts that end by themselves, however busy the machine is.
PATIENT = Settings(webhook_allowed_networks="127.0.0.0/8", webhook_timeout_s=30)

#: Far above the attempt's time, far below what a receiver here would take: no measurement.
SOON_S = 8


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        (b"", "http"),
        (b"HTTP/1.1 200 OK\r\n", "http"),
        (b"HTTP/1.1 200 OK\r\nX: y", "http"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "http"),
        (b"\x16\x03\x03", "https"),
        (b"", "https"),
    ],
)
def test_receiver_that_drips_or_hangs_holds_nobody_up(text: bytes, scheme: str) -> None:
    began = time.monotonic()
    with listener(dripping(text) if text else lambda: iter(())) as slow:
        reply = post_event(QUICK, f"{scheme}://127.0.0.1:{slow.port}/", {}, b"{}")
    assert (reply.status, reply.error) == (0, "no response within 0.6 s")
    assert slow.connections == 1
    assert time.monotonic() - began < SOON_S


def test_status_stands_though_the_body_drips_for_ever() -> None:
    with listener(dripping(b"HTTP/1.1 200 OK\r\n\r\nthanks", 0.001)) as slow:
        reply = post_event(QUICK, f"http://127.0.0.1:{slow.port}/", {}, b"{}")
    assert (reply.status, reply.error) == (200, None)
    assert reply.snippet.startswith("thanks")


def test_name_server_that_does_not_answer_holds_nobody_up() -> None:
    asked = threading.Event()

    def silent(*_: object) -> Any:
        asked.wait(SOON_S)
        return []

    reply = post_event(QUICK, "https://slow.example/", {}, b"{}", resolver=silent)
    asked.set()
    assert reply.error == "no response within 0.6 s"


def test_no_more_than_a_kilobyte_of_an_answer_is_kept() -> None:
    with receiver(lambda _: (500, {"Retry-After": "7"}, "ö".encode() * 100_000)) as found:
        reply = post_event(PATIENT, found.url, {}, b"{}")
    assert (reply.status, reply.retry_after) == (500, "7")
    assert 1000 < len(reply.snippet.encode()) <= 1024


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 100_000])
def test_answer_that_is_no_http_is_a_failure(answer: bytes) -> None:
    with listener(lambda: iter([answer])) as odd:
        reply = post_event(QUICK, f"http://127.0.0.1:{odd.port}/", {}, b"{}")
    assert reply.status == 0
    assert reply.error


def test_port_that_nobody_listens_on_is_a_failure() -> None:
    with listener() as gone:
        pass
    assert "refused" in (post_event(PATIENT, f"http://127.0.0.1:{gone.port}/", {}, b"").error or "").lower()


def test_path_and_query_arrive_as_they_were_given_and_escaped_where_they_must_be() -> None:
    with receiver() as found:
        post_event(PATIENT, found.url + "/a%20b/ö?x=1&y=%2F ü#part".replace(" ", "+"), {"webhook-id": "x"}, b"{}")
    assert found.posts[0].path == "/hook/a%20b/%C3%B6?x=1&y=%2F+%C3%BC"


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str], list[int]]]:
    """Start a proxy that connects to loopback for everyone; yield the first line of each request, and its answer."""
    lines: list[str] = []
    refuse: list[int] = []
    opened: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def pump(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass

    def serve() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            opened.append(one)
            head = b""
            while b"\r\n\r\n" not in head:
                head += one.recv(65536)
            lines.append(head.split(b"\r\n")[0].decode())
            if refuse:
                one.sendall(f"HTTP/1.1 {refuse[0]} Denied\r\n\r\n".encode())
                one.close()
                continue
            [port] = re.findall(r":(\d+)[ /]", lines[-1]) or ["0"]
            other = socket.create_connection(("127.0.0.1", int(port) if int(port) > 1000 else secret_port[0]))
            opened.append(other)
            if lines[-1].startswith("CONNECT"):
                one.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                other.sendall(head)
            for pair in ((one, other), (other, one)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    secret_port: list[int] = []
    threading.Thread(target=serve, daemon=True).start()
    with receiver() as behind:
        secret_port.append(int(behind.url.rpartition(":")[2].partition("/")[0]))
        yield f"http://127.0.0.1:{server.getsockname()[1]}", lines, refuse
    for one in (server, *opened):
        one.close()


def test_proxy_is_given_the_name_and_resolves_it_itself(proxy: tuple[str, list[str], list[int]]) -> None:
    url, lines, refuse = proxy
    settings = Settings(webhook_proxy=url, webhook_allow_http=True, webhook_timeout_s=30)
    assert post_event(settings, "http://hooks.example/in?x=1", {}, b"{}").status == 204
    reply = post_event(settings, "https://hooks.example/in", {}, b"{}")
    assert lines == ["POST http://hooks.example/in?x=1 HTTP/1.1", "CONNECT hooks.example:443 HTTP/1.1"]
    assert "SSL" in (reply.error or "")
    refuse.append(407)
    assert "the proxy refused: 407" in (post_event(settings, "https://a.example/", {}, b"").error or "")
    assert "refused" in (post_event(settings, "https://169.254.169.254/", {}, b"").error or "")
    assert len(lines) == 3


def test_certificate_must_be_of_the_name_that_was_asked_for(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=hooks.example"),
            *("-addext", "subjectAltName=DNS:hooks.example"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                one, _ = server.accept()
                with context.wrap_socket(one, server_side=True) as secure:
                    request = b""
                    while not request.endswith(b"{}"):
                        request += secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            except ssl.SSLError:
                continue
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    trusted = ssl.create_default_context(cafile=str(certificate))
    port = server.getsockname()[1]

    def to_loopback(_: str, port: int, *more: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    def post(host: str, tls: ssl.SSLContext | None) -> Any:
        return post_event(PATIENT, f"https://{host}:{port}/", {}, b"{}", resolver=to_loopback, tls=tls)

    good, other, unknown = post("hooks.example", trusted), post("other.example", trusted), post("hooks.example", None)
    server.close()
    assert (good.status, good.snippet) == (200, "ok")
    assert "Hostname mismatch" in (other.error or "")
    assert "self-signed" in (unknown.error or "") or "self signed" in (unknown.error or "")
