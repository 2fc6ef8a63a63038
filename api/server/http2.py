"""One connection that speaks HTTP/2, as Hypercorn serves it, with bounds: resources are freed once the caller has left.

Hypercorn 0.18 keeps a connection that its caller has closed for the idle time-out. It waits without limit for a caller
who reads nothing. It does not count requests whose streams were reset, so a connection may have any number in progress.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from h2.errors import ErrorCodes
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h2 import H2Protocol
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

from api.server.heads import Head
from api.server.serving import Bounds
from corelane.log import get_logger

log = get_logger(__name__)

Spawn = Callable[..., Any]

#: Bytes handled at a time: many small frames would make all other connections wait.
FRAMES_BYTES = 4 * 1024

#: Bytes kept unread.
BUFFER_BYTES = 64 * 1024

#: A closed connection has this long to take the rest, in seconds.
CLOSE_S = 5.0

#: Abandoned requests end well within this, in seconds.
ROOM_S = 10.0

#: The answer to a request that asks for HTTP/2.
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"


class ConnectionEnds(Exception):
    """Raised in the loop that reads a connection: serve nothing more of it."""


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


class Http2(TCPServer):
    """One connection, from the moment it turns out to speak HTTP/2 until it is closed."""

    bounds: Bounds
    upgrade: Head | None = None
    #: What serves it.
    task: asyncio.Task[None]
    _is_over = False
    _streams: H2Protocol

    def stop(self) -> None:
        """Do nothing: the task that waits for a connection to be idle also waits for the end of the server."""

    def cut(self) -> None:
        """End at once."""
        self.task.cancel()

    async def run(self) -> None:
        """Serve the connection."""
        socket = self.writer.get_extra_info("socket")
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with Requests(self.loop, self.bounds.requests) as requests:
                self._task_group = requests
                self._streams = H2Protocol(
                    *(self.app, self.config, self.context, requests, ConnectionState(self.state), False),
                    *(client, server, self.protocol_send),
                )
                await self._initiate()
                await self.idle_task.restart(requests, self._idle_timeout)
                await self._read_data()
        except* (OSError, ConnectionEnds):
            pass
        finally:
            await self._close()

    async def _initiate(self) -> None:
        """Begin; the request that asked for HTTP/2 is the first one served."""
        if self.upgrade is None:
            await self._streams.initiate()
            return
        sent = self.upgrade.headers
        headers = [(b":method", self.upgrade.method.encode()), (b":path", self.upgrade.target)]
        headers += [(b":authority", value) for name, value in sent if name == b"host"]
        settings = b"".join(value for name, value in sent if name == b"http2-settings")
        await self.protocol_send(RawData(SWITCHING))
        try:
            await self._streams.initiate(headers + sent, settings)
        except ValueError:
            raise ConnectionAbortedError from None  # settings that are none

    async def _read_data(self) -> None:
        try:
            while not self.reader.at_eof():
                data = await self.reader.read(FRAMES_BYTES)
                await self._streams.handle(RawData(data))
        except ConnectionEnds:
            await self._say_why()
            raise
        except OSError:
            pass
        # Otherwise the wait for the next request would hold the connection for the idle time-out.
        self._is_over = True
        await self._streams.handle(Closed())
        await self.idle_task.stop()

    async def _say_why(self) -> None:
        """Tell a caller who opened streams only to reset them."""
        log.info("connection_ended", reason="too many requests of it were given up")
        self._streams.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        await self.protocol_send(RawData(self._streams.connection.data_to_send()))

    async def protocol_send(self, event: Event) -> None:
        """Send bytes, or act on a protocol event."""
        if isinstance(event, RawData):
            async with self.send_lock:
                try:
                    self.writer.write(event.data)
                    await self._drain()
                except (ConnectionError, RuntimeError):
                    await self._streams.handle(Closed())
        elif isinstance(event, Closed) or not self._is_over:
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
        await self._streams.handle(Closed())
        self.writer.close()
        self.loop.call_later(CLOSE_S, self.writer.transport.abort)
