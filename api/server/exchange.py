"""One HTTP/1 request and its response: what the application receives, and what it sends."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from api.server.heads import Head
from api.server.responses import Framing, write_head
from corelane.log import get_logger

log = get_logger(__name__)

Address = tuple[str, int] | None


class Wire(Protocol):
    """The connection of an exchange."""

    #: Whether the caller takes what is sent fast enough.
    can_send: bool

    def date(self) -> bytes:
        """Return the line of the Date header."""

    def keeps(self) -> bool:
        """Return whether the connection may go on after the exchange that begins its response now."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def soon(self, act: Callable[[], None]) -> None:
        """Do something once what runs now has come to a pause."""

    def ask_for_body(self) -> None:
        """Have the caller send the body."""

    async def drain(self) -> None:
        """Wait until the caller has taken enough."""

    def took(self) -> None:
        """Note that the application took what has come of the body."""

    def answered(self, *, keeps: bool) -> None:
        """Note that the response is sent; ``keeps`` if the connection may go on."""

    def broke_off(self, *, refuses: bool) -> None:
        """End the connection: the response has no end; ``refuses`` if it has no beginning either."""

    def ended(self, exchange: "Exchange") -> None:
        """Note that the application is done with a request."""


def make_scope(head: Head, client: Address, server: Address, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ASGI scope of a request, as Hypercorn makes it."""
    path, _, query = head.target.partition(b"?")
    return {
        "type": "http",
        "http_version": head.version,
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "method": head.method,
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": head.headers,
        "client": client,
        "server": server,
        "state": dict(state),
        "extensions": {},
    }


class Exchange:
    """A request, from its head until the application is done with it."""

    def __init__(self, wire: Wire, head: Head) -> None:
        self._wire, self._head = wire, head
        self._framing: Framing | None = None
        self._news: asyncio.Event | None = None
        self._body: list[bytes] = []
        #: The head of the response, until it is sent: with the body if that comes at once.
        self._unsent = b""
        self._has_left = self._is_cut = self._is_answered = self._is_told = False
        self._waits_for_word = head.expects and head.has_body
        #: Bytes of the body that the application has not taken, and whether all of it has come.
        self.buffered = 0
        self.is_whole = not head.has_body

    @property
    def is_begun(self) -> bool:
        """Return whether the response has begun."""
        return self._framing is not None

    async def run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        """Have the application answer; a response that it leaves without an end, ends the connection."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            log.exception("application_broke")
        finally:
            if not self._is_answered:
                self._is_answered = True
                self._send_head()
                self._wire.broke_off(refuses=self._framing is None)
            self._wire.ended(self)

    def feed(self, data: bytes, *, is_whole: bool) -> None:
        """Note what has come of the body, and whether that is all."""
        if data:
            self._body.append(data)
            self.buffered += len(data)
        self.is_whole = is_whole
        self._waits_for_word = False
        self._tell()

    def leave(self) -> None:
        """Note that the caller has left. The response may reach it yet."""
        self._has_left = True
        self._tell()

    def cut(self) -> None:
        """Note that nothing more can be sent."""
        self._unsent = b""
        self._has_left = self._is_cut = self._is_answered = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def receive(self) -> Message:
        """Return what has come of the body since the last time; once there is no more, that the caller has left."""
        while True:
            if self._body or (self.is_whole and not self._is_told):
                body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                self._body.clear()
                self.buffered = 0
                self._is_told = self.is_whole
                self._wire.took()
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            if self._has_left or self._is_answered:
                return {"type": "http.disconnect"}
            if self._waits_for_word:
                self._waits_for_word = False
                if self._framing is None:
                    self._wire.ask_for_body()
            if self._news is None:
                self._news = asyncio.Event()
            await self._news.wait()

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if self._is_cut:
            return
        kind, wire, framing = message["type"], self._wire, self._framing
        if kind == "http.response.start" and framing is None:
            self._unsent, self._framing = write_head(
                message["status"],
                message.get("headers", ()),
                self._head.method,
                self._head.version,
                wire.date(),
                keeps=self._head.keeps and wire.keeps(),
            )
            wire.soon(self._send_head)
        elif kind == "http.response.body" and framing is not None and not self._is_answered:
            is_last = not message.get("more_body", False)
            if data := self._unsent + framing.frame(message.get("body", b""), is_last=is_last):
                self._unsent = b""
                wire.write(data)
            if not wire.can_send:
                await wire.drain()
            if is_last and not self._is_answered:
                self._is_answered = True
                self._tell()
                if framing.is_short:
                    wire.broke_off(refuses=False)
                else:
                    wire.answered(keeps=framing.keeps)
        else:
            raise RuntimeError(f"the application sent {kind} where none is due")

    def _send_head(self) -> None:
        """Send the head of the response if no body came along with it."""
        if self._unsent and not self._is_cut:
            self._wire.write(self._unsent)
        self._unsent = b""
