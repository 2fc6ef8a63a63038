"""The body's limits: a request larger than allowed is refused while it comes in, never gathered first; one that stops
coming is given up. Pure ASGI.

Hypercorn has a time limit on reading, but it would cut long polls and streams, whose clients are silent by right.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import is_lines
from api.errors import refuse
from corelane.errors import BodyTooSlow, TooLarge

#: Where files are uploaded, and what a form may hold besides its file, in bytes.
FILES_PATH = "/v1/files"
FORM_BYTES = 64 * 1024


class BodyLimit:
    """Answers 413 as soon as a body is known, or found, to be too large, and 408 when it falls silent; jobs sent as
    lines, and files, may be larger.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_upload_bytes: int, max_file_bytes: int, timeout_s: float
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_upload_bytes = max_upload_bytes
        self._max_file_bytes = max_file_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, setting = self._max_bytes, "CORELANE_MAX_BODY_BYTES"
        if is_lines(scope):
            most, setting = self._max_upload_bytes, "CORELANE_MAX_UPLOAD_BYTES"
        elif scope["path"] == FILES_PATH:
            most, setting = self._max_file_bytes + FORM_BYTES, "CORELANE_MAX_FILE_BYTES"
        sentence = f"the body has more than {most:,} bytes; send it in several parts, or raise {setting}"
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            await refuse(scope, receive, send, TooLarge(sentence))
            return
        received, is_whole = 0, False

        async def counted() -> Message:
            nonlocal received, is_whole
            if is_whole:
                # From here on nothing comes but the news that the caller has gone.
                return await receive()
            try:
                async with asyncio.timeout(self._timeout_s):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow(f"nothing more of the body came for {self._timeout_s:g} s; send it again") from None
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > most:
                raise TooLarge(sentence)
            return message

        await self._app(scope, counted, send)
