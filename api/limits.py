"""The body limit: a request larger than allowed is refused while it comes in, never gathered first. Pure ASGI."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import is_lines
from api.errors import problem
from corelane.errors import TooLarge


class BodyLimit:
    """Answers 413 as soon as a body is known, or found, to be too large; jobs sent as lines may be larger."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_upload_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, setting = self._max_bytes, "CORELANE_MAX_BODY_BYTES"
        if is_lines(scope):
            most, setting = self._max_upload_bytes, "CORELANE_MAX_UPLOAD_BYTES"
        sentence = f"the body has more than {most:,} bytes; send several jobs, or raise {setting}"
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            await problem(413, TooLarge.code, sentence)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise TooLarge(sentence)
            return message

        await self._app(scope, counted, send)
