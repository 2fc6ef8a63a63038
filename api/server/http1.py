"""One connection that speaks HTTP/1, with bounds, in few steps: a request has one task, which is the application's.

A caller who closes the sending side has left: the request in progress is told so, and the pipelined ones are dropped.
A connection that speaks HTTP/2, at once or by an upgrade, is handed over (``http2``).
"""

import asyncio
from collections.abc import Callable
from typing import cast

from hypercorn.utils import parse_socket_addr

from api.server.bodies import ChunkedBody, CountedBody
from api.server.exchange import Address, Exchange, make_scope
from api.server.heads import Head, Malformed, check_part, read_head
from api.server.responses import SEND_BODY, write_refusal
from api.server.serving import Serving
from corelane.log import get_logger

log = get_logger(__name__)

#: The longest head that is read, in bytes.
HEAD_BYTES = 80 * 1024

#: Bytes of a body that the application has not taken, and bytes of pipelined requests that may come in while one is
#: answered.
BODY_BYTES, AHEAD_BYTES = 64 * 1024, 64 * 1024

#: A connection asks nothing for this long before it is closed, in seconds: above the 60 s of usual proxies.
KEEP_ALIVE_S = 75.0

#: A caller who was accepted while the server began to stop has this long to ask, in seconds.
LATE_S = 0.5

#: A closed connection has this long to take the rest, in seconds.
CLOSE_S = 5.0

#: What a caller sends first who speaks HTTP/2 without asking, and what ends a head.
PREFACE, HEAD_END = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n\r\n"


class Http1(asyncio.Protocol):
    """One connection, from its start until it is closed."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, serving: Serving) -> None:
        self._serving, self._loop, self._bounds = serving, serving.loop, serving.bounds
        self._client: Address = None
        self._server: Address = None
        #: What has come and was not read, and how much of that holds no end of a head.
        self._buffer = bytearray()
        self._looked_at = 0
        #: The request that is answered, and what reads the rest of its body.
        self._exchange: Exchange | None = None
        self._body: CountedBody | ChunkedBody | None = None
        #: Requests that the application is not done with.
        self._running: dict[Exchange, asyncio.Task[None]] = {}
        #: Requests served in a row that were there when the one before was answered.
        self._in_a_row = 0
        #: Nothing was served yet; nothing more is read; the transport is gone.
        self._is_first, self._is_over, self._is_lost = True, False, False
        self._is_reading = True
        self._idle_since, self._dropped = 0.0, 0
        self._writable: asyncio.Event | None = None
        self.can_send = True

    # What the transport reports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a caller."""
        self._transport = cast(asyncio.Transport, transport)
        family = transport.get_extra_info("socket").family
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._client = parse_socket_addr(family, peer) if peer else None
        self._server = parse_socket_addr(family, own) if own else None
        self._serving.open.add(self)
        self._idle_since = self._loop.time()
        self._timer = self._loop.call_later(KEEP_ALIVE_S, self._check_idle)
        if self._serving.is_stopping:
            self._loop.call_later(LATE_S, self.stop)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End what is in progress: nothing more can be sent."""
        self._is_lost = self._is_over = True
        self._timer.cancel()
        self._buffer.clear()
        if self._exchange is not None:
            self._exchange.cut()
        self.resume_writing()
        if not self._running:
            self._serving.leave(self)

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        if self._is_over:
            self._dropped += len(data)
            if self._dropped > AHEAD_BYTES:
                self._transport.abort()
            return
        self._buffer += data
        if self._exchange is None or self._body is not None:
            self._read()
        elif len(self._buffer) > AHEAD_BYTES:
            log.info("connection_ended", reason="too much was sent ahead")
            self._cut_off()

    def eof_received(self) -> bool:
        """Note that the caller has left; return True, as the transport need not close by itself."""
        self._is_over = True
        self._buffer.clear()
        if self._exchange is None:
            self._close()
        else:
            self._exchange.leave()
        return True

    def pause_writing(self) -> None:
        """Note that the caller takes too little."""
        self.can_send = False

    def resume_writing(self) -> None:
        """Note that the caller has taken enough."""
        self.can_send = True
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # Reading

    def _read(self) -> None:
        """Read as far as bytes have come and a request is due."""
        if not self._buffer:
            return
        try:
            if self._body is not None:
                self._read_body(self._body)
            elif self._exchange is None and not self._is_over:
                self._read_request()
        except Malformed as wrong:
            self._refuse(wrong.status)

    def _read_request(self) -> None:
        """Read the next head if it is whole, and have its request served."""
        if len(self._running) >= 2 * self._bounds.requests:
            return  # ``ended`` goes on
        buffer = self._buffer
        if self._is_first and PREFACE.startswith(buffer[: len(PREFACE)]):
            if len(buffer) >= len(PREFACE):
                self._hand_over(None)
            return
        end = buffer.find(HEAD_END, self._looked_at, HEAD_BYTES)
        if end < 0:
            check_part(buffer, HEAD_BYTES)
            self._looked_at = max(0, len(buffer) - len(HEAD_END) + 1)
            return
        head = read_head(bytes(buffer[:end]))
        del buffer[: end + len(HEAD_END)]
        self._looked_at = 0
        if self._is_first and head.upgrade == b"h2c" and not head.has_body:
            self._hand_over(head)
            return
        self._is_first = False
        self._in_a_row += 1
        exchange = self._exchange = Exchange(self, head)
        if head.has_body:
            self._body = ChunkedBody() if head.is_chunked else CountedBody(head.length)
            if buffer:
                self._read_body(self._body)
        scope = make_scope(head, self._client, self._server, self._serving.state)
        self._running[exchange] = self._loop.create_task(exchange.run(self._serving.app, scope))

    def _read_body(self, body: CountedBody | ChunkedBody) -> None:
        """Hand on what has come of the body; read no further while the application does not take it."""
        exchange = cast(Exchange, self._exchange)
        data, is_whole = body.take(self._buffer)
        exchange.feed(data, is_whole=is_whole)
        if is_whole:
            self._body = None
        elif exchange.buffered > BODY_BYTES and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def _refuse(self, status: int) -> None:
        """Answer what cannot be read, if its response has not begun, and end the connection."""
        exchange, self._exchange, self._body = self._exchange, None, None
        self._is_over = True
        self._buffer.clear()
        if exchange is not None:
            exchange.cut()
        if exchange is not None and exchange.is_begun:
            self._transport.abort()
            return
        # What is still on its way would cost the caller the answer if the connection were closed at once.
        self._transport.write(write_refusal(status, self.date()))
        self._transport.write_eof()
        self._abort_in(CLOSE_S)

    def _hand_over(self, upgrade: Head | None) -> None:
        """Have the rest of the connection served as HTTP/2."""
        self._is_over = True
        self._timer.cancel()
        self._serving.hand_over(self._transport, bytes(self._buffer), upgrade)
        self._serving.leave(self)

    # The end

    def stop(self) -> None:
        """Serve nothing more than what is in progress."""
        if self._exchange is None and not self._is_over:
            self._close()

    def cut(self) -> None:
        """End at once."""
        for task in self._running.values():
            task.cancel()
        self._cut_off()

    def _cut_off(self) -> None:
        self._is_over = True
        if self._exchange is not None:
            self._exchange.cut()
        self._transport.abort()

    def _close(self) -> None:
        """Send the rest, and close."""
        self._is_over = True
        if not self._is_lost:
            self._transport.close()
            self._abort_in(CLOSE_S)

    def _abort_in(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._transport.abort)

    def _check_idle(self) -> None:
        """Close a connection that asks nothing; look again at one that may come to that."""
        wait_s = KEEP_ALIVE_S
        if self._exchange is None:
            wait_s -= self._loop.time() - self._idle_since
            if wait_s <= 0:
                self._close()
                return
        self._timer = self._loop.call_later(wait_s, self._check_idle)

    # What an exchange asks for

    def date(self) -> bytes:
        """Return the line of the Date header."""
        return self._serving.dates.line()

    def keeps(self) -> bool:
        """Return whether the connection may go on after the exchange that begins its response now."""
        return not (self._is_over or self._serving.is_stopping or self._is_too_far_ahead())

    def _is_too_far_ahead(self) -> bool:
        return self._in_a_row >= self._bounds.requests and bool(self._buffer)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    def soon(self, act: Callable[[], None]) -> None:
        """Do something once what runs now has come to a pause."""
        self._loop.call_soon(act)

    def ask_for_body(self) -> None:
        """Have the caller send the body."""
        self._transport.write(SEND_BODY)

    async def drain(self) -> None:
        """Wait until the caller has taken enough; cut off a caller who takes nothing for too long."""
        while not self.can_send:
            waiting = self._transport.get_write_buffer_size()
            if self._writable is None:
                self._writable = asyncio.Event()
            try:
                async with asyncio.timeout(self._bounds.stall_s):
                    await self._writable.wait()
            except TimeoutError:
                left = self._transport.get_write_buffer_size()
                if left >= waiting:
                    log.info("caller_stalled", unsent_bytes=left)
                    self._cut_off()
                    return

    def took(self) -> None:
        """Read on once the application took what has come of the body."""
        if not self._is_reading and not self._is_lost:
            self._is_reading = True
            self._transport.resume_reading()

    def answered(self, *, keeps: bool) -> None:
        """Go on with the next request, or end the connection."""
        self._exchange = None
        is_at_end = self._is_over or self._serving.is_stopping or self._body is not None
        if not keeps or is_at_end or self._is_too_far_ahead():
            self._close()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Read the next request, in a context of its own, if it is there."""
        self._idle_since = self._loop.time()
        if self._buffer:
            self._loop.call_soon(self._read, context=self._serving.blank())
        else:
            self._in_a_row = 0

    def broke_off(self, *, refuses: bool) -> None:
        """End the connection: the response has no end; ``refuses`` if it has no beginning either."""
        self._exchange = None
        if self._is_lost:
            return
        if refuses:
            self._transport.write(write_refusal(500, self.date()))
        self._close()

    def ended(self, exchange: Exchange) -> None:
        """Note that the application is done with a request."""
        self._running.pop(exchange, None)
        if self._is_lost:
            if not self._running:
                self._serving.leave(self)
        elif self._exchange is None and self._buffer and not self._is_over:
            self._go_on()
