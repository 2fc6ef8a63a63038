"""One connection, as Hypercorn serves it, with bounds: its resources are freed once the caller has left.

Hypercorn 0.18 keeps a connection that its caller has closed for the idle time-out. While pipelined requests wait, it
does not notice that the caller has left, and serves each of them to nobody. It waits without limit for a caller who
reads nothing. It does not count requests whose HTTP/2 streams were reset, so a connection may have any number in
progress. Here a caller who closes the sending side has left: the request in progress is told so, and the pipelined ones
are dropped.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from h2.errors import ErrorCodes
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    ConnectionState,
    Scope,
)
from hypercorn.utils import parse_socket_addr

from corelane.log import get_logger

log = get_logger(__name__)

Spawn = Callable[..., Any]

#: Bytes handled at a time: many small HTTP/2 frames would make all other connections wait.
READ_BYTES, FRAMES_BYTES = 16 * 1024, 4 * 1024

#: Bytes kept unread, and bytes of pipelined requests that may come in while one is answered.
BUFFER_BYTES, AHEAD_BYTES = 64 * 1024, 64 * 1024

#: A closed connection has this long to take the rest, in seconds.
CLOSE_S = 5.0

#: Abandoned requests end well within this, in seconds.
ROOM_S = 10.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one connection: ``requests`` in progress, and ``stall_s`` in which its caller reads nothing."""

    requests: int
    stall_s: float


class ConnectionEnds(Exception):
    """Raised in the loop that reads a connection: serve nothing more of it."""


class PipelineEvent:
    """The event that the next pipelined HTTP/1 request waits for: the one before is answered, or the end."""

    def __init__(self, most: int, on_last: Callable[[], None]) -> None:
        self._event = asyncio.Event()
        self._most, self._on_last = most, on_last
        self._ahead = 0
        self._is_over = False
        self.is_awaited = False

    async def wait(self) -> None:
        """Wait for the event; raise ConnectionEnds if the connection ends."""
        self._ahead += 1
        if self._ahead >= self._most:
            self._on_last()
        self.is_awaited = True
        await self._event.wait()
        self.is_awaited = False
        if self._is_over or self._ahead >= self._most:
            raise ConnectionEnds

    async def set(self) -> None:
        """Report that the request before is answered."""
        self._event.set()

    async def clear(self) -> None:
        """Report that a request is not answered yet."""
        if not self._is_over:
            self._event.clear()

    def is_set(self) -> bool:
        """Return whether the request before is answered."""
        return self._event.is_set()

    def catch_up(self) -> None:
        """Report that no pipelined request waits."""
        self._ahead = 0

    def end(self) -> None:
        """Let no further request be served."""
        self._is_over = True
        self._event.set()


class WatchedReader(asyncio.StreamReader):
    """A stream that notices at once, without being read, that its caller has left or pipelines too much."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=BUFFER_BYTES, loop=loop)
        self.next: PipelineEvent | None = None
        self._unread = 0

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # bytes are what connections give
        """Take bytes that have come."""
        super().feed_data(data)
        if self.next is not None and self.next.is_awaited:
            self._unread += len(data)
            if self._unread > AHEAD_BYTES:
                self.next.end()
        else:
            self._unread = 0

    def feed_eof(self) -> None:
        """Note that no more will come."""
        super().feed_eof()
        if self.next is not None:
            self.next.end()

    def set_exception(self, exc: Exception) -> None:
        """Note that the connection is lost."""
        super().set_exception(exc)
        if self.next is not None:
            self.next.end()


class Requests(TaskGroup):
    """The requests of one connection in progress, including abandoned ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        super().__init__(loop)
        self._most = most
        self._running = self._answered = self._abandoned = 0
        self._ended = asyncio.Event()

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start to answer a request; raise ConnectionEnds if the caller abandoned too many."""
        if self._abandoned > self._answered + self._most:
            raise ConnectionEnds
        await self._find_room()
        self._running += 1
        is_answered = is_abandoned = False

        async def run(
            scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable, sync_spawn: Spawn, call_soon: Spawn
        ) -> None:
            try:
                # A reset HTTP/2 stream needs no answer; an HTTP/1 caller may just have closed the sending side.
                if not is_abandoned or scope.get("http_version") != "2":
                    await app(scope, receive, send, sync_spawn, call_soon)
            finally:
                self._running -= 1
                self._ended.set()

        async def answer(message: ASGISendEvent | None) -> None:
            nonlocal is_answered
            if not is_answered and (message is None or is_last(message)):
                is_answered = True
                self._answered += 1
            await send(message)

        async def put(event: ASGIReceiveEvent) -> None:
            nonlocal is_abandoned
            if event["type"] == "http.disconnect" and not is_answered and not is_abandoned:
                is_abandoned = True
                self._abandoned += 1
            await receive(event)

        receive = await super().spawn_app(run, config, scope, answer)
        return put

    async def _find_room(self) -> None:
        """Wait until few enough are in progress: over HTTP/2 those whose streams were reset come to their end."""
        try:
            async with asyncio.timeout(ROOM_S):
                while self._running >= 2 * self._most:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            raise ConnectionEnds from None


def is_last(message: ASGISendEvent) -> bool:
    """Return whether a message ends a response."""
    return message["type"] == "http.response.body" and not message.get("more_body", False)


class Connection(TCPServer):
    """One connection, from its start until it is closed."""

    bounds = Bounds(100, 60)
    _is_over = False
    _next: PipelineEvent
    reader: WatchedReader

    async def run(self) -> None:
        """Serve the connection."""
        socket = self.writer.get_extra_info("socket")
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with Requests(self.loop, self.bounds.requests) as requests:
                self._task_group = requests
                self.protocol = ProtocolWrapper(
                    *(self.app, self.config, self.context, requests, ConnectionState(self.state), False),
                    *(client, server, self.protocol_send, "http/1.1"),
                )
                self._watch_pipeline()
                await self.protocol.initiate()
                await self.idle_task.restart(requests, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()

    def _watch_pipeline(self) -> None:
        """Have pipelined requests wait for an event that may end them."""
        protocol = self.protocol.protocol

        def say_close() -> None:
            # Hypercorn then sends `Connection: close` with the next response.
            protocol.keep_alive_requests = sys.maxsize

        self._next = PipelineEvent(self.bounds.requests, say_close)
        if isinstance(protocol, H11Protocol):
            protocol.can_read = self._next
        self.reader.next = self._next

    async def _read_data(self) -> None:
        try:
            while not self.reader.at_eof():
                is_framed = isinstance(self.protocol.protocol, H2Protocol)
                data = await self.reader.read(FRAMES_BYTES if is_framed else READ_BYTES)
                await self.protocol.handle(RawData(data))
                self._next.catch_up()
        except ConnectionEnds:
            await self._say_why()
        except OSError:
            pass
        # Otherwise the wait for the next request would hold the connection for the idle time-out.
        self._is_over = True
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _say_why(self) -> None:
        """Tell an HTTP/2 caller who opened streams only to reset them."""
        protocol = self.protocol.protocol
        if isinstance(protocol, H2Protocol):
            log.info("connection_ended", reason="too many requests of it were given up")
            protocol.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self.protocol_send(RawData(protocol.connection.data_to_send()))

    async def protocol_send(self, event: Event) -> None:
        """Send bytes, or act on a protocol event."""
        if isinstance(event, RawData):
            async with self.send_lock:
                try:
                    self.writer.write(event.data)
                    await self._drain()
                except (ConnectionError, RuntimeError):
                    await self.protocol.handle(Closed())
            return
        if isinstance(event, Closed):
            self._next.end()
        elif self._is_over:
            return
        await super().protocol_send(event)

    async def _drain(self) -> None:
        """Wait until the caller has read enough; cut off a caller who reads nothing for too long."""
        transport = self.writer.transport
        waiting = transport.get_write_buffer_size()
        while waiting:
            try:
                async with asyncio.timeout(self.bounds.stall_s):
                    await self.writer.drain()
                return
            except TimeoutError:
                left = transport.get_write_buffer_size()
                if left >= waiting:
                    log.info("caller_stalled", unsent_bytes=left)
                    transport.abort()
                waiting = left
        await self.writer.drain()

    async def _close(self) -> None:
        self._next.end()
        with suppress(NotImplementedError, OSError, RuntimeError):
            self.writer.write_eof()
        cut = self.loop.call_later(CLOSE_S, self.writer.transport.abort)
        try:
            self.writer.close()
            await self.writer.wait_closed()
        except (ConnectionError, RuntimeError, asyncio.CancelledError):
            pass  # closed already
        finally:
            cut.cancel()
            await self.idle_task.stop()

    async def _initiate_server_close(self) -> None:
        await self.protocol.handle(Closed())
        self.writer.close()
        self.loop.call_later(CLOSE_S, self.writer.transport.abort)
