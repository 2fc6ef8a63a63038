"""Requests that are answered before their body was read to its end: a refusal must reach a sender who still sends.

Hypercorn hands the body over through a short queue, and its last word on a request, that the connection is closed, goes
through the same queue: if that is full and nobody reads it any more, the connection hangs with the answer half sent.
So whatever the application has left is read and thrown away while the answer goes out. Pure ASGI.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class UnreadBody:
    """Reads on while the last of an answer is sent; only for requests whose body may be long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        is_read = False

        async def watched() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = not message.get("more_body", False)
            return message

        async def read_rest() -> None:
            while not is_read:
                await watched()

        async def answered(message: Message) -> None:
            if is_read or message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            reading = asyncio.create_task(read_rest(), name="unread-body")
            try:
                await send(message)
            finally:
                reading.cancel()

        await self._app(scope, watched, answered)


def has_body(scope: Scope) -> bool:
    """Whether a request says that a body follows."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
