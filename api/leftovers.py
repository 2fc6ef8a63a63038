"""What is left of a body when the answer is known before its end, as for a bad key. Pure ASGI.

Over HTTP/1 the server closes such a connection, and a client that sends its next request into it cannot tell whether
that was taken in. So what is still on its way is taken off the line if it is little; if it is much, the client is told
not to use the connection again. Then the answer goes out, all but the news that it is over, and the rest is read and
thrown away: a client that sends before it reads loses the answer in a connection that is closed under it; and
Hypercorn, which hands a body over through a short queue and says through the same queue that a connection is closed,
would hang if it were full. Over HTTP/2 Hypercorn breaks down at what comes after an answer's end, and takes all other
requests of the connection with it.
"""

import asyncio
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: More than this is not taken off the line, nor waited for longer: in bytes and in seconds.
MOST_BYTES, MOST_S = 256 * 1024, 0.5

#: Once the answer is out, the rest is read for so long at most, and while it does not pause for so long, in seconds.
LINGER_S, SILENCE_S = 15.0, 2.0

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

        async def send_and_read(message: Message) -> None:
            if is_whole or message["type"] != "http.response.body" or message.get("more_body", False):
                await send_when_clear(message)
                return
            reading = asyncio.create_task(linger(), name="unread-body")
            try:
                await send({**message, "more_body": True})
                await reading
            finally:
                reading.cancel()
            await send({"type": "http.response.body"})

        await self._app(scope, watched, send_and_read)


def has_body(scope: Scope) -> bool:
    """Whether a request says that a body comes; over HTTP/2 none needs to say so."""
    return scope["http_version"] == "2" or any(
        name in BODY_HEADERS and value != b"0" for name, value in scope["headers"]
    )
