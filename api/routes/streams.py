"""Streams: of events, which a reader may go on with elsewhere, and of results, which say so when they end too early."""

from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import StreamingResponse
from starlette.types import Send


class EventStream(StreamingResponse):
    """Server-sent events.

    FastAPI's own EventSourceResponse counts a reader who leaves while something is being sent as an error of ours.
    """

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        """No proxy is to keep or gather what it holds."""
        super().__init__(content, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


class StreamCut(Exception):
    """Raised by what a stream is made of: it goes no further, though there is more."""


class CuttableStream(StreamingResponse):
    """A stream without a proper end where it was cut, so that no reader takes a part for the whole."""

    async def stream_response(self, send: Send) -> None:
        """Send what there is; the connection is closed after a cut."""
        with suppress(StreamCut):
            await super().stream_response(send)
