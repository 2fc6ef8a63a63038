"""Streams of events, which a reader may resume, and of results, which show if they end too early."""

from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import StreamingResponse
from starlette.types import Send


class EventStream(StreamingResponse):
    """Server-sent events.

    FastAPI 0.165's own EventSourceResponse reports a server error if a reader disconnects while an event is being sent.
    """

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        """Proxies may neither cache nor buffer the content."""
        super().__init__(content, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


class StreamCut(Exception):
    """Raised by a stream's content if it must end here although there is more."""


class CuttableStream(StreamingResponse):
    """A stream that ends improperly if it is cut, so that a reader does not take a part for the whole."""

    async def stream_response(self, send: Send) -> None:
        """Send the content; the connection is closed after a cut."""
        with suppress(StreamCut):
            await super().stream_response(send)
