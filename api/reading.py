"""How routes read requests: each parameter, and each JSON body, in one place.

A ``PlainRoute`` is for frequent requests. FastAPI documents the route by its handler's parameters, and FastAPI's fields
check what is sent. Nothing else of FastAPI runs, because that would take 0.5 ms of CPU. A ``JsonRoute`` is an ordinary
route of FastAPI.
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from traceback import clear_frames
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from api.deps import refuse_unknown_parameters
from api.request_facts import LINES, content_type, has_body, is_json, read_headers
from api.requests import NOTHING, JsonRequest, PlainRequest, require_scope
from corelane.errors import NotJson

#: The header and the query parameter for how long a caller waits. ``PlainRequest.waits`` combines both.
Prefer = Annotated[str | None, Header(description="`wait=N`: respond when the job is final, or after N seconds.")]
Wait = Annotated[
    float | None, Query(ge=0, le=86_400, allow_inf_nan=False, description="The same as `Prefer: wait`, in seconds.")
]


class PlainRoute(APIRoute):
    """A route whose handler gets the request, and the parameters that it declares; it has no dependencies.

    A parameter that was not sent has the handler's default. All faults of a request are reported together.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        """Find what the handler declares, and which kind of request it takes."""
        super().__init__(path, endpoint, **more)
        declared = [each.annotation for each in inspect.signature(endpoint).parameters.values()]
        [self._kind] = [each for each in declared if isinstance(each, type) and issubclass(each, PlainRequest)]
        fields = {
            "path": self.dependant.path_params,
            "query": self.dependant.query_params,
            "header": self.dependant.header_params,
        }
        self._fields = [
            (place, each.alias.lower() if place == "header" else each.alias, each)
            for place, some in fields.items()
            for each in some
        ]
        self.app = self._serve

    def matches(self, scope: Scope) -> tuple[Match, Any]:
        """Return whether this route serves a request. Fixed paths are only compared: every route adds to the time."""
        if not self.param_convertors and scope["path"] != self.path:
            return Match.NONE, {}
        return super().matches(scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._kind(scope, receive)
        if self.body_field is None:
            response = await self._call(request, None)
        else:
            require_json(read_headers(scope))
            with await request.enter():
                response = await self._call(request, await request.read(form_of_body(self)))
        await response(scope, receive, send)

    async def _call(self, request: PlainRequest, body: Any) -> Response:
        """Check what was sent, and call the handler."""
        has_query = bool(request.scope["query_string"])
        if has_query:
            await refuse_unknown_parameters(request)
        if request.needs is not None:
            require_scope(request.caller, request.needs)
        sent: dict[str, Mapping[str, Any]] = {
            "path": request.scope["path_params"],
            "query": request.query_params if has_query else {},
            "header": read_headers(request.scope),
        }
        values, faults = dict[str, Any](), list[Any]()
        for place, name, field in self._fields:
            if (given := sent[place].get(name)) is not None:
                values[field.name], found = field.validate(given, loc=(place, field.alias))
                faults += found
        if self.body_field is not None:
            values[self.body_field.name], found = self.body_field.validate(body, loc=("body",))
            faults += found if body is not NOTHING else [{"type": "missing", "loc": ("body",), "msg": ""}]
        if faults:
            raise RequestValidationError(faults)
        response: Response = await self.endpoint(request, **values)
        return response


class NdjsonRoute(PlainRoute):
    """A route that matches only requests with an NDJSON body; others are left to the JSON form."""

    def matches(self, scope: Scope) -> tuple[Match, Any]:
        """Return whether this route serves a request."""
        match, found = super().matches(scope)
        is_of_lines = match is not Match.NONE and content_type(read_headers(scope)) in LINES
        return (match, found) if is_of_lines else (Match.NONE, {})


class JsonRoute(APIRoute):
    """A route of FastAPI that takes JSON bodies only."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler for a JsonRequest. It raises NotJson for a body of another content type."""
        handle, takes_body, model = super().get_route_handler(), self.body_field is not None, form_of_body(self)

        async def handle_json(request: Request) -> Response:
            if not takes_body:
                return await handle(request)
            require_json(request.headers)
            read = JsonRequest(request.scope, request.receive)
            read.model = model
            with await read.enter():
                try:
                    return await handle(read)
                except Exception as error:
                    # FastAPI 0.165 stores an error in the frame that raises it. That cycle would keep the body in
                    # memory until the next full garbage collection, thousands of requests later.
                    clear_frames(error.__traceback__)
                    raise

        return handle_json


def form_of_body(route: APIRoute) -> type[BaseModel] | None:
    """Return the model of the body that a route takes, if it has one."""
    form = route.body_field.field_info.annotation if route.body_field is not None else None
    return form if isinstance(form, type) and issubclass(form, BaseModel) else None


def require_json(headers: Mapping[str, str]) -> None:
    """Raise NotJson for a body of another content type."""
    if has_body(headers) and not is_json(given := content_type(headers)):
        came = f"the body is said to be `{given[:100]}`" if given else "nothing says what the body is"
        raise NotJson(f"{came}: send JSON with the header `Content-Type: application/json`")
