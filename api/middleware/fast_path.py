"""The fast path: requests of the usual form go straight to their endpoints, past FastAPI.

FastAPI spends 0.4 ms of CPU on choosing a route, resolving its dependencies and checking its response; the fast path
takes a tenth of that. It leaves every unusual or wrong request to FastAPI, which reports what is wrong. Both ways
call the same functions.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute, APIRouter
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import refuse
from api.middleware.edge import CREATE_METHODS, HEADERS
from api.request_facts import CALLER
from corelane.errors import CorelaneError

#: Most digits in the length of a body that is read here; ``api.middleware.json_bodies`` describes how larger ones are
#: read.
MOST_DIGITS = 5


class FastRequest:
    """One request on the fast path."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        #: The headers, as the layer before read them.
        self.headers: Mapping[str, str] = scope[HEADERS][1]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.caller: Any = scope.get(CALLER)
        self.state: Any = scope["app"].state.app_state
        #: The body; empty until ``read_body`` has read it.
        self.body = b""
        #: Returns what follows the body: the disconnect of the caller.
        self.receive = receive
        self._messages: list[Message] = []

    @property
    def is_json(self) -> bool:
        """Return whether the request declares a small JSON body. A body without a declared size may be endless."""
        declared = self.headers.get("content-length", "")
        is_small = declared.isdecimal() and len(declared) <= MOST_DIGITS
        return is_small and self.headers.get("content-type") == "application/json"

    async def read_body(self) -> bool:
        """Read the body; return False if the caller disconnects."""
        # The parts are joined as they come: a caller may send each byte separately.
        body, message = bytearray(), await self.receive()
        while message["type"] == "http.request" and message.get("more_body", False):
            body += message.get("body", b"")
            message = await self.receive()
        is_whole: bool = message["type"] == "http.request"
        self.body = bytes(body + message.get("body", b""))
        self._messages = [{"type": "http.request", "body": self.body, "more_body": not is_whole}]
        if not is_whole:
            self._messages.append(message)
        return is_whole

    async def receive_again(self) -> Message:
        """Return the messages that were received already, in order, then new ones."""
        return self._messages.pop(0) if self._messages else await self.receive()


#: Responds to a request; None for one that FastAPI must handle.
FastHandler = Callable[[FastRequest], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class FastRoute:
    """A handler, and the route that it stands for, under which requests are counted."""

    route: APIRoute
    handler: FastHandler


class FastPath:
    """The layer in front of FastAPI's layers."""

    def __init__(self, app: ASGIApp, routes: Mapping[tuple[str, str], FastRoute]) -> None:
        """``routes`` are by method and path; the last part of a path may be a parameter."""
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        fast = self._find(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fast is None:
            await self._app(scope, receive, send)
            return
        request = FastRequest(scope, receive)
        scope["route"] = fast.route
        try:
            is_read = scope["method"] not in CREATE_METHODS or (request.is_json and await request.read_body())
            response = await fast.handler(request) if is_read else None
        except CorelaneError as error:
            await refuse(scope, receive, send, error)
            return
        if response is not None:
            await response(scope, receive, send)
            return
        del scope["route"]
        await self._app(scope, request.receive_again, send)

    def _find(self, method: str, path: str) -> FastRoute | None:
        found = self._routes.get((method, path))
        return found or self._routes.get((method, path[: path.rfind("/") + 1]))


def fast_routes(router: APIRouter, handlers: Mapping[Any, FastHandler]) -> dict[tuple[str, str], FastRoute]:
    """Return a router's fast routes by method and path; ``handlers`` are by endpoint."""
    return {
        (method, route.path.partition("{")[0]): FastRoute(route, handlers[route.endpoint])
        for route in router.routes
        if isinstance(route, APIRoute) and route.endpoint in handlers
        for method in route.methods or ()
    }
