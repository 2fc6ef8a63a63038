"""A request that is asked of cells inside this process, and their replies."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corelane.errors import BodyTooSlow, TooLarge

#: Headers of a request that would change what is asked of several cells, or how it is answered.
LEFT_OUT = frozenset({b"content-length", b"transfer-encoding", b"if-none-match", b"accept-encoding"})

#: A query as pairs, in order: names may stand twice.
Query = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Reply:
    """What a cell answered."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @property
    def is_away(self) -> bool:
        """Return whether the cell cannot answer now."""
        return self.status >= 500

    def json(self) -> Any:
        """Return the body's value."""
        return orjson.loads(self.body)

    async def send(self, send: Send, *more: tuple[bytes, bytes]) -> None:
        """Pass the reply on."""
        await send({"type": "http.response.start", "status": self.status, "headers": [*self.headers, *more]})
        await send({"type": "http.response.body", "body": self.body})


class Replay:
    """The body of a request that was read before, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        body, self._body = self._body, None
        return await self._receive() if body is None else {"type": "http.request", "body": body, "more_body": False}


async def read_body(receive: Receive, most: int, timeout_s: float) -> bytes:
    """Read a body; raise TooLarge for one that is longer, BodyTooSlow where nothing more comes."""
    parts: list[bytes] = []
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(f"nothing more of the body came for {timeout_s:g} s; send it again") from None
        if message["type"] != "http.request":  # the caller left: nobody reads the answer
            return b"".join(parts)
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > most:
            raise TooLarge(f"the body has more than {most:,} bytes, the most that is taken here")
        if not message.get("more_body", False):
            return b"".join(parts)


def read_query(scope: Scope) -> list[tuple[str, str]]:
    """Return a request's query."""
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def changed(scope: Scope, *, query: Query | None = None, path: str | None = None, body: bytes = b"") -> Scope:
    """Return the scope of a request like another, with another query, path or body."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in LEFT_OUT]
    more: dict[str, Any] = {"headers": [*headers, (b"content-length", str(len(body)).encode())]}
    if query is not None:
        more["query_string"] = urlencode(query).encode()
    if path is not None:
        more |= {"path": path, "raw_path": path.encode()}
    return {**scope, **more, "state": dict(scope.get("state", {}))}


async def call(app: ASGIApp, scope: Scope, body: bytes = b"") -> Reply:
    """Ask an application, and return its whole reply."""
    reply, parts = Reply(), list[bytes]()
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()  # nobody leaves
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    reply.body = b"".join(parts)
    return reply


async def call_all(asked: Mapping[str, tuple[ASGIApp, Scope, bytes]]) -> dict[str, Reply]:
    """Ask several at the same time; return their replies by cell."""
    replies = await asyncio.gather(*(call(*each) for each in asked.values()))
    return dict(zip(asked, replies, strict=True))


def json_reply(value: Any, kept: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    """Return a reply of JSON, with further headers."""
    body = orjson.dumps(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *kept]
    return Reply(200, headers, body)
