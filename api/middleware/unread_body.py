"""The response to a request whose body was not read completely, as after a bad key.

Over HTTP/1 the server closes such a connection. So a short rest is read first; if the rest is long, the response tells
the client not to reuse the connection. Then the whole response is sent, except its end. For a while the rest is read
and dropped: a client that sends before it reads would lose the response when the connection is closed.

The rest is still read while the end of the response is sent. Hypercorn 0.18 passes bodies and the closing of a
connection through one short queue, and would hang if it were full. Over HTTP/2 it fails on data after the end of a
response, and breaks all other requests of the connection.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Send

#: Most bytes that are read before the response begins, and the longest time for it, in seconds.
MOST_BYTES, MOST_S = 256 * 1024, 0.5

#: After the response the rest is read for at most LINGER_S, and until it pauses for SILENCE_S, in seconds.
LINGER_S, SILENCE_S = 5.0, 2.0


class RequestBody:
    """The body of one request, and whether all of it has come."""

    def __init__(self, source: Receive, *, is_whole: bool) -> None:
        self._source, self.is_whole = source, is_whole

    async def receive(self) -> Message:
        """Return the next part of the body, or the disconnect of the caller."""
        message = await self._source()
        self.is_whole = self.is_whole or not message.get("more_body", False)
        return message


async def send_while_unread(body: RequestBody, message: Message, sink: Send, *, can_close: bool) -> None:
    """Send one message of a response; ``can_close`` says that a header can announce the end of the connection."""
    if message["type"] == "http.response.start":
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_S):
                await _read(body, MOST_BYTES)
        if can_close and not body.is_whole:
            MutableHeaders(scope=message)["Connection"] = "close"
    elif message["type"] == "http.response.body" and not message.get("more_body", False):
        async with _meanwhile(_linger(body)) as over:
            await sink({**message, "more_body": True})
            await over
        async with _meanwhile(_read(body)):
            await sink({"type": "http.response.body"})
        return
    await sink(message)


async def _read(body: RequestBody, most: float = float("inf")) -> None:
    taken = 0
    while not body.is_whole and taken < most:
        taken += len((await body.receive()).get("body", b""))


async def _linger(body: RequestBody) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while not body.is_whole:
                async with asyncio.timeout(SILENCE_S):
                    await body.receive()


@asynccontextmanager
async def _meanwhile(reading: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a reader of a body while the block runs."""
    task = asyncio.create_task(reading, name="unread-body")
    try:
        yield task
    finally:
        task.cancel()
