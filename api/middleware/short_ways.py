"""The short ways: requests of the usual form go straight to their endpoints, past FastAPI.

FastAPI spends 0.4 ms of CPU on choosing a route, resolving its dependencies and checking its answer. A short way spends
a tenth of it. It takes a request in which nothing is unusual and nothing is wrong, and declines every other one, which
then goes through FastAPI. So FastAPI alone says what is wrong with a request, and a short way must only know what is
right. Both end in the same functions.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute, APIRouter
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.context import CALLER
from api.errors import refuse
from api.middleware.edge import CREATE_METHODS, HEADERS
from corelane.errors import CorelaneError

#: Digits in the length of a body that is read here; ``api.middleware.json_bodies`` says how larger ones are read.
MOST_DIGITS = 5


class Asked:
    """One request on its short way."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        #: As the layer before read them.
        self.headers: Mapping[str, str] = scope[HEADERS][1]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.caller: Any = scope.get(CALLER)
        self.state: Any = scope["app"].state.app_state
        #: Its body, if it has one and that was read.
        self.body = b""
        #: Returns what comes after the body: the news that the caller has left.
        self.receive = receive
        self._heard: list[Message] = []

    @property
    def is_json(self) -> bool:
        """Return whether it sends JSON. The bytes of that are bounded; lines may be without end."""
        declared = self.headers.get("content-length", "")
        is_small = declared.isdecimal() and len(declared) <= MOST_DIGITS
        return is_small and self.headers.get("content-type") == "application/json"

    async def read_body(self) -> bool:
        """Read the body; return False if the caller breaks off."""
        # Parts are not kept as they came: a caller may send each byte by itself.
        body, message = bytearray(), await self.receive()
        while message["type"] == "http.request" and message.get("more_body", False):
            body += message.get("body", b"")
            message = await self.receive()
        is_whole: bool = message["type"] == "http.request"
        self.body = bytes(body + message.get("body", b""))
        self._heard = [{"type": "http.request", "body": self.body, "more_body": not is_whole}]
        if not is_whole:
            self._heard.append(message)
        return is_whole

    async def hear_again(self) -> Message:
        """Return what was heard already, from its beginning, then what comes."""
        return self._heard.pop(0) if self._heard else await self.receive()


#: Answers a request; None for one that FastAPI has to look at. By the endpoint that it stands for.
ShortWay = Callable[[Asked], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class Way:
    """A short way, and the route that it stands for: requests are counted by it."""

    route: APIRoute
    answer: ShortWay


class ShortWays:
    """The layer in front of FastAPI's own."""

    def __init__(self, app: ASGIApp, ways: Mapping[tuple[str, str], Way]) -> None:
        """``ways`` are by method and path; the last part of a path may be a parameter."""
        self._app = app
        self._ways = ways

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        way = self._find(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if way is None:
            await self._app(scope, receive, send)
            return
        asked = Asked(scope, receive)
        scope["route"] = way.route
        try:
            is_read = scope["method"] not in CREATE_METHODS or (asked.is_json and await asked.read_body())
            response = await way.answer(asked) if is_read else None
        except CorelaneError as error:
            await refuse(scope, receive, send, error)
            return
        if response is not None:
            await response(scope, receive, send)
            return
        del scope["route"]
        await self._app(scope, asked.hear_again, send)

    def _find(self, method: str, path: str) -> Way | None:
        found = self._ways.get((method, path))
        return found or self._ways.get((method, path[: path.rfind("/") + 1]))


def ways_of(router: APIRouter, ways: Mapping[Any, ShortWay]) -> dict[tuple[str, str], Way]:
    """Return a router's short ways by method and path, given those by their endpoints."""
    return {
        (method, route.path.partition("{")[0]): Way(route, ways[route.endpoint])
        for route in router.routes
        if isinstance(route, APIRoute) and route.endpoint in ways
        for method in route.methods or ()
    }
