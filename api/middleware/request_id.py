"""The outermost layer: who a request says it is, by `X-Request-ID` and `traceparent`.

Both are on every log line of the request, on its problems and on the jobs it brings; the id goes back with every
response. Pure ASGI: everything inside, middleware too, finds the origin in its context.
"""

from contextvars import ContextVar

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corelane.domain.request_context import NOWHERE, Origin, continue_trace, read_request_id, trace_id

#: The origin of the request that is being served; each request is a task of its own.
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)

REQUEST_ID = "X-Request-ID"


class Origins:
    """Reads the origin, or makes a request id, and sends the id back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = Origin(read_request_id(headers.get(REQUEST_ID, "")), continue_trace(headers.get("traceparent", "")))
        # Never reset: what is sent for an unforeseen error, further out than this, has the id as well.
        ORIGIN.set(origin)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=origin.request_id)
        if origin.traceparent:
            structlog.contextvars.bind_contextvars(trace_id=trace_id(origin.traceparent))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = origin.request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
