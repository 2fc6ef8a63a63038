"""One connection, as Hypercorn serves it, with bounds: what its caller holds is given back once the caller has left.

Hypercorn 0.18 alone holds a connection that its caller has closed for as long as one may stay idle. It does not notice
that a caller has left while requests that were sent ahead wait for their turn: it serves each of them to nobody. It
waits without end for a caller who takes no bytes. It does not count requests whose HTTP/2 streams were reset, so a
connection may have any number under way. Here a caller who closes the sending side has left: the request that is being
answered is told so, and those behind it are dropped.
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

#: Bytes handled at a time: over HTTP/2 many small frames keep all other connections waiting meanwhile.
READ_BYTES, FRAMES_BYTES = 16 * 1024, 4 * 1024

#: Bytes kept unread, and bytes of further requests that may come in while one is answered.
BUFFER_BYTES, AHEAD_BYTES = 64 * 1024, 64 * 1024

#: A connection that is closed gets this long to take what is left, in seconds.
CLOSE_S = 5.0

#: Requests that nobody waits for any more end well within this, in seconds.
ROOM_S = 10.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one connection may have: ``requests`` under way, and ``stall_s`` in which its caller takes nothing."""

    requests: int
    stall_s: float


class ConnectionEnds(Exception):
    """Raised in the loop that reads a connection: nothing more of it is served."""


class Turn:
    """The turn of the next request that was sent ahead over HTTP/1: when the one before is answered, or never."""

    def __init__(self, most: int, on_last: Callable[[], None]) -> None:
        self._event = asyncio.Event()
        self._most, self._on_last = most, on_last
        self._ahead = 0
        self._is_over = False
        self.is_awaited = False

    async def wait(self) -> None:
        """Wait for the turn; raises ConnectionEnds if it does not come."""
        self._ahead += 1
        if self._ahead >= self._most:
            self._on_last()
        self.is_awaited = True
        await self._event.wait()
        self.is_awaited = False
        if self._is_over or self._ahead >= self._most:
            raise ConnectionEnds

    async def set(self) -> None:
        """Say that the request before is answered."""
        self._event.set()

    async def clear(self) -> None:
        """Say that it is not."""
        if not self._is_over:
            self._event.clear()

    def is_set(self) -> bool:
        """Whether it is answered."""
        return self._event.is_set()

    def catch_up(self) -> None:
        """Say that no request waits for its turn."""
        self._ahead = 0

    def end(self) -> None:
        """Say that there is no next turn."""
        self._is_over = True
        self._event.set()


class Ears(asyncio.StreamReader):
    """A stream that hears at once that its caller has left, or sends too much ahead, though nobody reads just then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=BUFFER_BYTES, loop=loop)
        self.turn: Turn | None = None
        self._unread = 0

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # bytes are what connections give
        """Take what has come."""
        super().feed_data(data)
        if self.turn is not None and self.turn.is_awaited:
            self._unread += len(data)
            if self._unread > AHEAD_BYTES:
                self.turn.end()
        else:
            self._unread = 0

    def feed_eof(self) -> None:
        """Hear that no more will come."""
        super().feed_eof()
        if self.turn is not None:
            self.turn.end()

    def set_exception(self, exc: Exception) -> None:
        """Hear that the connection is lost."""
        super().set_exception(exc)
        if self.turn is not None:
            self.turn.end()


class Requests(TaskGroup):
    """The requests of one connection that are under way, those that nobody waits for included."""

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
        """Begin to answer a request; raises ConnectionEnds where too many were given up by their caller."""
        if self._abandoned > self._answered + self._most:
            raise ConnectionEnds
        await self._find_room()
        self._running += 1
        is_answered = is_abandoned = False

        async def run(
            scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable, sync_spawn: Spawn, call_soon: Spawn
        ) -> None:
            try:
                # A stream that was reset before its turn came asks nothing. Over HTTP/1 one may close the sending side.
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
        """Wait until no more than allowed are under way: over HTTP/2 it is those whose streams were reset that end."""
        try:
            async with asyncio.timeout(ROOM_S):
                while self._running >= 2 * self._most:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            raise ConnectionEnds from None


def is_last(message: ASGISendEvent) -> bool:
    """Whether a message ends an answer."""
    return message["type"] == "http.response.body" and not message.get("more_body", False)


class Connection(TCPServer):
    """One connection, from its beginning until nothing is left of it."""

    bounds = Bounds(100, 60)
    _is_over = False
    _turn: Turn
    reader: Ears

    async def run(self) -> None:
        """Serve it."""
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
                self._take_turns()
                await self.protocol.initiate()
                await self.idle_task.restart(requests, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()

    def _take_turns(self) -> None:
        """Have requests that were sent ahead wait for a turn that may end."""
        protocol = self.protocol.protocol

        def say_close() -> None:
            # Hypercorn then sends `Connection: close` with the answer that is on its way.
            protocol.keep_alive_requests = sys.maxsize

        self._turn = Turn(self.bounds.requests, say_close)
        if isinstance(protocol, H11Protocol):
            protocol.can_read = self._turn
        self.reader.turn = self._turn

    async def _read_data(self) -> None:
        try:
            while not self.reader.at_eof():
                is_framed = isinstance(self.protocol.protocol, H2Protocol)
                data = await self.reader.read(FRAMES_BYTES if is_framed else READ_BYTES)
                await self.protocol.handle(RawData(data))
                self._turn.catch_up()
        except ConnectionEnds:
            await self._say_why()
        except OSError:
            pass
        # Else what waits for the next request would hold the connection for as long as one may stay idle.
        self._is_over = True
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    async def _say_why(self) -> None:
        """Tell a caller over HTTP/2 who opened streams only to reset them."""
        protocol = self.protocol.protocol
        if isinstance(protocol, H2Protocol):
            log.info("connection_ended", reason="too many requests of it were given up")
            protocol.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self.protocol_send(RawData(protocol.connection.data_to_send()))

    async def protocol_send(self, event: Event) -> None:
        """Send bytes, or follow what the protocol says of the connection."""
        if isinstance(event, RawData):
            async with self.send_lock:
                try:
                    self.writer.write(event.data)
                    await self._drain()
                except (ConnectionError, RuntimeError):
                    await self.protocol.handle(Closed())
            return
        if isinstance(event, Closed):
            self._turn.end()
        elif self._is_over:
            return
        await super().protocol_send(event)

    async def _drain(self) -> None:
        """Wait until the caller has taken enough; one who takes nothing for too long is cut off."""
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
        self._turn.end()
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
