"""The trace layer, outside all other layers if traces are on: it writes the server's step of some requests.

A request is traced if it changes something, or if it belongs to a caller's trace. A request that only
reads begins no trace, because the traces of polls would hide those of jobs.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.request_facts import TRACEPARENT, read_headers
from corelane.domain.request_facts import continue_trace
from corelane.tracing import Attributes, Tracer

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

#: Probes and scrapes are not traced, although a caller's proxy may add them to a trace.
UNTRACED = ("/livez", "/readyz", "/metrics")


class TraceLayer:
    """Writes requests into traces."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, sink: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in UNTRACED:
            await self._app(scope, receive, sink)
            return
        parent = read_parent(read_headers(scope).get("traceparent", ""))
        if not parent and scope["method"] in READ_METHODS:
            await self._app(scope, receive, sink)
            return
        entry = self._tracer.begin(scope["method"], "server", parent, request_facts(scope))
        scope[TRACEPARENT] = entry.traceparent
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await sink(message)

        failure: str | None = None
        try:
            await self._app(scope, receive, send)
            failure = str(status) if status >= 500 else None
        except BaseException as error:
            failure = type(error).__qualname__
            raise
        finally:
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                entry.rename(f"{scope['method']} {route}")
            entry.end({"http.route": route, "http.response.status_code": status or None}, failure)


def read_parent(given: str) -> str:
    """Return the caller's traceparent; empty if it is malformed."""
    return f"00-{given[3:55]}" if given and continue_trace(given) else ""


def request_facts(scope: Scope) -> Attributes:
    """Return the facts about a request when it begins. Its query is left out, because it may contain secrets."""
    server = scope.get("server") or (None, None)
    return {
        "http.request.method": scope["method"],
        "url.path": scope["path"],
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
        "server.address": server[0],
        "server.port": server[1],
    }
