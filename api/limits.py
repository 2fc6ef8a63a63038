"""The body limit: a request larger than allowed is refused while it comes in, never gathered first. Pure ASGI."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.bodies import is_lines
from api.errors import for_openai, problem
from corelane.errors import TooLarge

#: Where files are uploaded, and what a form may hold besides its file, in bytes.
FILES_PATH = "/v1/files"
FORM_BYTES = 64 * 1024


class BodyLimit:
    """Answers 413 as soon as a body is known, or found, to be too large; lines and files may be larger."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_upload_bytes: int, max_file_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_upload_bytes = max_upload_bytes
        self._max_file_bytes = max_file_bytes

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
            more = for_openai(scope["path"], 413, TooLarge.code, sentence)
            await problem(413, TooLarge.code, sentence, **more)(scope, receive, send)
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
