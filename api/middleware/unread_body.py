"""What is left of a body when the answer is known before its end, as for a bad key. Pure ASGI.

Over HTTP/1 the server closes such a connection, and a client that sends its next request into it cannot tell whether
that was taken in. So what is still on its way is taken off the line if it is little; if it is much, the client is told
not to use the connection again. Then the answer goes out, all but the news that it is over, and the rest is read and
thrown away for a while: a client that sends before it reads loses the answer in a connection that is closed under it.
Reading goes on while that news goes out: Hypercorn hands a body over through a short queue and says through the same
queue that a connection is closed, and would hang if it were full. Over HTTP/2 Hypercorn breaks down at what comes after
an answer's end, and takes all other requests of the connection with it.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: More than this is not taken off the line, nor waited for longer: in bytes and in seconds.
MOST_BYTES, MOST_S = 256 * 1024, 0.5

#: Once the answer is out, the rest is read for so long at most, and while it does not pause for so long, in seconds.
LINGER_S, SILENCE_S = 5.0, 2.0

#: Headers that say that a body comes.
BODY_HEADERS = (b"content-length", b"transfer-encoding")


class Leftovers:
    """Looks after every request with a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        is_whole = False

        async def watched() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = is_whole or not message.get("more_body", False)
            return message

        async def take_off() -> None:
            taken = 0
            while not is_whole and taken < MOST_BYTES:
                taken += len((await watched()).get("body", b""))

        async def send_when_clear(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_whole:
                with suppress(TimeoutError):
                    async with asyncio.timeout(MOST_S):
                        await take_off()
                if not is_whole and scope["http_version"] != "2":
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        async def linger() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while not is_whole:
                        async with asyncio.timeout(SILENCE_S):
                            await watched()

        async def read_rest() -> None:
            while not is_whole:
                await watched()

        async def send_and_read(message: Message) -> None:
            if is_whole or message["type"] != "http.response.body" or message.get("more_body", False):
                await send_when_clear(message)
                return
            async with reading(linger()) as over:
                await send({**message, "more_body": True})
                await over
            async with reading(read_rest()):
                await send({"type": "http.response.body"})

        await self._app(scope, watched, send_and_read)


@asynccontextmanager
async def reading(body: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """What reads a body, at work meanwhile and no longer."""
    task = asyncio.create_task(body, name="unread-body")
    try:
        yield task
    finally:
        task.cancel()


def has_body(scope: Scope) -> bool:
    """Whether a request says that a body comes; over HTTP/2 none needs to say so."""
    return scope["http_version"] == "2" or any(
        name in BODY_HEADERS and value != b"0" for name, value in scope["headers"]
    )
