"""The body limit: a request larger than allowed is refused while it comes in, never gathered first. Pure ASGI."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem
from corelane.errors import TooLarge


class BodyLimit:
    """Answers 413 as soon as a body is known, or found, to be too large."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise TooLarge(self._sentence())
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await problem(413, TooLarge.code, self._sentence())(scope, receive, send)

    def _sentence(self) -> str:
        return f"the body has more than {self._max_bytes:,} bytes; send several jobs, or raise CORELANE_MAX_BODY_BYTES"
