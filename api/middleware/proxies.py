"""What trusted proxies say of a request: the caller's address, and the scheme and host the caller used. Pure ASGI.

Each proxy appends what it saw, so with N trusted ones the N-th value from the right is the last that can be believed.
Hypercorn's own layer for this copies the whole scope, which fails inside an application.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send


class TrustedProxies:
    """Puts it in place of what the connection says."""

    def __init__(self, app: ASGIApp, hops: int) -> None:
        self._app = app
        self._hops = hops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        changes: dict[str, object] = {}
        if client := self._trusted(headers, "x-forwarded-for"):
            changes["client"] = (client, 0)
        if (scheme := self._trusted(headers, "x-forwarded-proto")) in ("http", "https"):
            changes["scheme"] = scheme
        if host := self._trusted(headers, "x-forwarded-host"):
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            changes["headers"] = [*others, (b"host", host.encode("latin-1"))]
        scope.update(changes)
        await self._app(scope, receive, send)

    def _trusted(self, headers: Headers, name: str) -> str:
        values = [part.strip() for value in headers.getlist(name) for part in value.split(",")]
        return values[-self._hops] if len(values) >= self._hops else ""
