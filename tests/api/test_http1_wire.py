"""Our HTTP/1 on real sockets, under an application of its own: what callers send, and what becomes of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import h2.connection
import h2.events
import pytest
import uvloop
from starlette.types import Message, Receive, Scope, Send

from api.server.http1 import Http1
from api.server.serve import make_config, serve
from api.server.serving import Bounds, Serving
from corelane.settings import Settings

REQUEST: ContextVar[str] = ContextVar("request", default="none")

MOST = 3

Put = Callable[[bytes], Awaitable[None]]


class App:
    """An application that answers by the path of a request, and notes what it was told."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.told: list[Message] = []
        self.has_left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": f"{message['type']}.complete"})
            return
        self.served.append(scope["path"])
        await getattr(self, scope["path"].strip("/"))(scope, receive, send)

    async def _start(self, send: Send, *headers: tuple[bytes, bytes], status: int = 200) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            self.told.append(message)
            if message["type"] == "http.disconnect":
                self.has_left.set()
                return
            body, more = body + message["body"], message["more_body"]
        await self._start(send, (b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.body", "body": body})

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._start(send, (b"connection", b"keep-alive"))
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def empty(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._start(send, status=204)
        await send({"type": "http.response.body", "body": b"dropped"})

    async def broken(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("broken")

    async def silent(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass

    async def half(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._start(send)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})

    async def short(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._start(send, (b"content-length", b"9"))
        await send({"type": "http.response.body", "body": b"part"})

    async def split(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._start(send, (b"location", scope["query_string"].replace(b"_", b"\r\n")))

    async def late(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer once the caller has left."""
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.has_left.set()
        await self._start(send, (b"content-length", b"4"))
        await send({"type": "http.response.body", "body": b"late"})

    async def context(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = REQUEST.get().encode()
        REQUEST.set("left behind")
        await self._start(send, (b"content-length", str(len(found)).encode()))
        await send({"type": "http.response.body", "body": found})


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[App, "Connect"], Awaitable[None]]], App]:
    """Run a test beside a server of the application, on each kind of loop."""

    async def beside(act: Callable[[App, Connect], Awaitable[None]]) -> App:
        app = App()
        async with serving(app) as connect, asyncio.timeout(60):
            await act(app, connect)
        return app

    def run_one(act: Callable[[App, Connect], Awaitable[None]]) -> App:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(beside(act))

    return run_one


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Run = Callable[[Callable[[App, Connect], Awaitable[None]]], App]


@asynccontextmanager
async def serving(app: App, grace_s: float = 5) -> AsyncIterator[Connect]:
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    settings, asked = Settings(max_connection_requests=MOST), asyncio.Event()
    config = make_config(settings, f"fd://{listener.detach()}", grace_s)
    served = asyncio.create_task(serve(app, config, settings, asked.wait))

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(host, port)

    try:
        yield connect
    finally:
        asked.set()
        await served


def request(path: str, *headers: str, method: str = "GET", body: bytes = b"", version: str = "1.1") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/{version}", "Host: here", *headers, "", "")).encode() + body


async def ask_once(connect: Connect, *parts: bytes) -> bytes:
    """Send parts one by one on a new connection; return all that comes until the server ends it."""
    reader, writer = await connect()
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    found = await reader.read()
    writer.close()
    return found


CLOSE = "Connection: close"


def test_body_comes_whole_however_it_is_cut_and_sent(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        body = b"x" * 200_000
        counted = request("/echo", f"Content-Length: {len(body)}", CLOSE, method="POST", body=body)
        chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(body) // 4, body[: len(body) // 4]) for _ in range(4))
        chunked = request(
            "/echo", "Transfer-Encoding: chunked", CLOSE, method="POST", body=chunks + b"0\r\nA: b\r\n\r\n"
        )
        for sent in (counted, chunked):
            for size in (len(sent), 50_000, 999):
                found = await ask_once(connect, *(sent[at : at + size] for at in range(0, len(sent), size)))
                assert found.startswith(b"HTTP/1.1 200 OK\r\n")
                assert found.endswith(b"\r\nconnection: close\r\n\r\n" + body)

    run(act)


def test_response_ends_as_its_head_says(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        head, _, body = (await ask_once(connect, request("/stream", CLOSE))).partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        head, _, body = (await ask_once(connect, request("/stream", version="1.0"))).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert body == b"onetwo"
        assert (await ask_once(connect, request("/stream", CLOSE, method="HEAD"))).endswith(b"\r\n\r\n")
        assert (await ask_once(connect, request("/empty", CLOSE))).endswith(b"connection: close\r\n\r\n")

    run(act)


@pytest.mark.parametrize("path", ["/broken", "/silent", "/split?a_b"])
def test_request_that_the_application_does_not_answer_is_answered_500(run: Run, path: str) -> None:
    async def act(app: App, connect: Connect) -> None:
        assert (await ask_once(connect, request(path) * 2)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")

    assert len(run(act).served) == 1


@pytest.mark.parametrize("path", ["/half", "/short"])
def test_response_without_its_end_ends_the_connection(run: Run, path: str) -> None:
    async def act(app: App, connect: Connect) -> None:
        found = await ask_once(connect, request(path) * 2)
        assert b"part" in found
        assert not found.endswith(b"0\r\n\r\n")

    assert len(run(act).served) == 1


TWO_LENGTHS = ("Content-Length: 5", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("/echo", *TWO_LENGTHS, method="POST", body=b"0\r\n\r\n" + request("/echo")), 400),
        (b"GET /echo HTTP/1.1\nHost: here\n\n", 400),
        (request("/echo", "A: b", " folded"), 400),
        (request("/echo", "A: " + "b" * 90_000), 431),
        (request("/echo", "Transfer-Encoding: chunked", method="POST", body=b"5x\r\nhello\r\n0\r\n\r\n"), 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
def test_what_could_be_read_in_two_ways_is_answered_and_the_connection_ended(
    run: Run, sent: bytes, status: int
) -> None:
    async def act(app: App, connect: Connect) -> None:
        assert (await ask_once(connect, sent)).startswith(f"HTTP/1.1 {status} ".encode())

    assert run(act).served == []


def test_request_before_one_that_is_none_is_answered(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        found = await ask_once(connect, request("/echo") + b"nothing\r\n\r\n")
        assert [line.split()[1] for line in found.splitlines() if line.startswith(b"HTTP/")] == [b"200", b"400"]

    assert run(act).served == ["/echo"]


def test_chunk_that_is_none_ends_a_request_in_progress(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(request("/echo", "Transfer-Encoding: chunked", method="POST", body=b"3\r\nabc\r\n"))
        while not app.told:
            await asyncio.sleep(0.01)
        writer.write(b"nothing\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        await app.has_left.wait()
        writer.close()

    assert run(act).told[-1] == {"type": "http.disconnect"}


def test_caller_is_asked_for_the_body_only_where_it_is_read(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        waits = ("Expect: 100-continue", "Content-Length: 5", CLOSE)
        found = await ask_once(connect, request("/stream", *waits, method="POST"))
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        reader, writer = await connect()
        writer.write(request("/echo", *waits, method="POST"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert (await reader.read()).endswith(b"hello")
        writer.close()

    run(act)


def test_caller_is_asked_for_the_body_though_a_read_came_to_nothing() -> None:
    """uvloop may read a request before the read that was put off for it: that one finds nothing."""

    async def act() -> bytes:
        loop, begun, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            begun.set()
            await asked.wait()
            await receive()

        serving = Serving(app, loop, Bounds(MOST, 5), {}, hand_over=lambda *_: None)
        near, far = socket.socketpair()
        _, protocol = await loop.connect_accepted_socket(lambda: Http1(serving), near)
        reader, writer = await asyncio.open_connection(sock=far)
        writer.write(request("/", "Expect: 100-continue", "Content-Length: 5", method="POST"))
        await begun.wait()
        protocol._read()
        asked.set()
        async with asyncio.timeout(60):
            found = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return found

    assert asyncio.run(act()) == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_caller_who_closed_the_sending_side_is_told_what_it_left_and_may_read(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(request("/late") + request("/echo"))
        writer.write_eof()
        assert (await reader.read()).endswith(b"late")
        writer.close()

    assert run(act).served == ["/late"]


def test_each_request_has_a_context_of_its_own(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        found = await ask_once(connect, request("/context") + request("/context", CLOSE))
        assert found.count(b"\r\n\r\nnone") == 2

    run(act)


def test_caller_who_asks_for_http_2_gets_it_on_the_first_request_without_a_body(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        wire = h2.connection.H2Connection()
        asks = wire.initiate_upgrade_connection()
        assert asks is not None
        upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", f"HTTP2-Settings: {asks.decode()}")
        with_body = request("/echo", *upgrade, "Content-Length: 2", method="POST", body=b"ok")
        found = await ask_once(connect, with_body + request("/echo", *upgrade) + request("/echo", CLOSE))
        assert found.count(b"HTTP/1.1 200 OK") == 3
        reader, writer = await connect()
        writer.write(request("/context", *upgrade))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        events: list[h2.events.Event] = []
        while not any(isinstance(event, h2.events.StreamEnded) for event in events):
            writer.write(wire.data_to_send())
            events += wire.receive_data(await reader.read(65536))
        parts = [event.data for event in events if isinstance(event, h2.events.DataReceived)]
        assert b"".join(parts) == b"none"
        writer.close()

    run(act)


def test_stop_lets_requests_end_and_says_that_the_connection_does(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        other = App()
        async with serving(other) as connect_other:
            idle, idling = await connect_other()
            reader, writer = await connect_other()
            writer.write(request("/echo", "Content-Length: 5", method="POST", body=b"he"))
            while not other.told:
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(idle.read())

            async def finish() -> bytes:
                assert await stopping == b""
                writer.write(b"llo")
                return await reader.read()

            finishing = asyncio.create_task(finish())
        found: Any = await finishing
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" in found
        assert found.endswith(b"hello")
        writer.close()
        idling.close()

    run(act)


def test_stop_cuts_a_request_that_does_not_end(run: Run) -> None:
    async def act(app: App, connect: Connect) -> None:
        other = App()
        async with serving(other, grace_s=0.05) as connect_other:
            reader, writer = await connect_other()
            writer.write(request("/echo", "Content-Length: 5", method="POST", body=b"he"))
            while not other.told:
                await asyncio.sleep(0.01)
        assert await read_until_cut(reader) == b""
        writer.close()

    run(act)


async def read_until_cut(reader: asyncio.StreamReader) -> bytes:
    """Return what comes before the server cuts the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
