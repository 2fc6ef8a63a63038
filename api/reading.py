"""How routes read requests: each parameter, and each JSON body, in one place.

A ``PlainRoute`` is for frequent requests. It is a Starlette route: FastAPI documents it by the parameters of its
handler, and its own fields check what is sent, but nothing else of FastAPI runs, which would take 0.5 ms of CPU. A
``JsonRoute`` is one of FastAPI's. Large bodies are read as ``corelane.submitting.large_bodies`` says.
"""

import inspect
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from traceback import clear_frames
from typing import Annotated, Any, ClassVar, cast

from fastapi import Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.routing import Match
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from api.deps import refuse_unknown_parameters, require_scope
from api.jobs import CallerWait
from api.middleware.edge import content_type, has_body, is_json, read_headers
from api.request_facts import CALLER
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.errors import NotJson
from corelane.settings import Settings
from corelane.submitting.large_bodies import LARGE_BYTES, BodyRoom, load
from corelane.submitting.submitter import require_few_items

#: How long a caller waits, as routes declare it. ``PlainRequest.waits`` reads both together.
Prefer = Annotated[str | None, Header(description="`wait=N`: respond when the job is final, or after N seconds.")]
Wait = Annotated[
    float | None, Query(ge=0, le=86_400, allow_inf_nan=False, description="The same as `Prefer: wait`, in seconds.")
]

#: The preference `wait=N` in a Prefer header (RFC 7240).
WAIT_PREFERENCE = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", re.IGNORECASE)


#: The value of a body that was not sent.
NOTHING = object()


class JsonRequest(Request):
    """A request whose JSON is read by orjson, ten times as fast as the standard library for large jobs.

    It refuses invalid UTF-8, NaN and lone surrogates, which the standard library accepts.
    """

    #: The model that validates its body, if the body is large.
    model: type[BaseModel] | None = None
    #: The room that its body takes up.
    room: BodyRoom | None = None

    @property
    def app_state(self) -> AppState:
        """Return the state of the app that serves this request."""
        return cast(AppState, self.scope["app"].state.app_state)

    @property
    def owner(self) -> str:
        """Return the owner of the request; empty if it has no caller."""
        caller: Caller | None = self.scope.get(CALLER)
        return "" if caller is None else caller.owner

    async def enter(self) -> BodyRoom:
        """Reserve room for the body before it is read; raise Overloaded."""
        headers, most = read_headers(self.scope), self.app_state.settings.max_body_bytes
        declared = headers.get("content-length", "")
        size = min(int(declared), most) if declared.isdecimal() and len(declared) < 20 else most
        has_none = not declared and self.scope["http_version"] != "2" and "transfer-encoding" not in headers
        self.room = await self.app_state.large_bodies.enter(self.owner, 0 if has_none else size)
        return self.room

    async def body(self) -> bytes:
        """Return the body. Its parts are joined as they come, as a caller may send each byte separately."""
        if not hasattr(self, "_body"):
            body = bytearray()
            async for part in self.stream():
                body += part
            self._body = bytes(body)
        return self._body

    async def json(self) -> Any:
        """Return the body's value, or its model if the body is large.

        Raise json.JSONDecodeError, which FastAPI turns into 422; TooLarge; RequestValidationError.
        """
        sent, state = await self.body(), self.app_state
        parse = partial(read_json, state.settings, model=self.model if len(sent) > LARGE_BYTES else None)
        return await state.large_bodies.read(self.owner, sent, parse)

    def let_go(self) -> None:
        """Drop the body. Called once its content is stored elsewhere."""
        self._body = b""
        if self.room is not None:
            self.room.leave()


class PlainRequest(JsonRequest):
    """A request of a plain route."""

    #: The scope that the caller's key must have.
    needs: ClassVar[Scope | None] = None

    @property
    def caller(self) -> Caller:
        """Return the caller that the outer layers identified."""
        return cast(Caller, self.scope[CALLER])

    def waits(self, wait: float | None, prefer: str | None) -> CallerWait:
        """Return how long the caller waits, at most the longest time allowed."""
        seconds = preferred_wait(prefer or "") if wait is None else wait
        most = self.app_state.settings.max_wait_s
        return CallerWait(None if seconds is None else min(seconds, most), self.receive)

    async def read(self, model: type[BaseModel] | None) -> Any:
        """Return the body's value, or its model if the body is large; NOTHING if there is no body."""
        self.model = model
        try:
            return await self.json() if await self.body() else NOTHING
        except json.JSONDecodeError as error:
            fault = {"type": "json_invalid", "loc": ("body",), "msg": error.msg, "ctx": {"error": error.msg}}
            raise RequestValidationError([fault]) from None


class SubmitRequest(PlainRequest):
    """A request that takes in or changes work."""

    needs = Scope.SUBMIT


class ReadRequest(PlainRequest):
    """A request for the caller's own work."""

    needs = Scope.READ


class PlainRoute(APIRoute):
    """A route whose handler gets the request, and the parameters that it declares; it has no dependencies.

    What a caller did not send has the handler's default. All faults of a request are told together.
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

    def matches(self, scope: AsgiScope) -> tuple[Match, Any]:
        """Return whether this route serves a request. Most paths are only compared: each route before adds to all."""
        if not self.param_convertors and scope["path"] != self.path:
            return Match.NONE, {}
        return super().matches(scope)

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
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


class JsonRoute(APIRoute):
    """A route of FastAPI that takes JSON bodies only."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler for a JsonRequest. It raises NotJson for a body of another content type."""
        handle, takes_body, model = super().get_route_handler(), self.body_field is not None, form_of_body(self)

        async def handle_json(request: Request) -> Response:
            if not takes_body:
                return await handle(request)
            require_json(request.headers)
            request = JsonRequest(request.scope, request.receive)
            request.model = model
            with await request.enter():
                try:
                    return await handle(request)
                except Exception as error:
                    # FastAPI 0.165 stores an error in the frame that raises it. That cycle would keep the body in
                    # memory until the next full garbage collection, thousands of requests later.
                    clear_frames(error.__traceback__)
                    raise

        return handle_json


def preferred_wait(header: str) -> float | None:
    """Return the seconds of ``Prefer: wait=N``, or None; an unreadable preference is ignored, as RFC 7240 asks."""
    match = WAIT_PREFERENCE.search(header)
    return float(match[1]) if match else None


def form_of_body(route: APIRoute) -> type[BaseModel] | None:
    """Return the model of the body that a route takes, if it has one."""
    form = route.body_field.field_info.annotation if route.body_field is not None else None
    return form if isinstance(form, type) and issubclass(form, BaseModel) else None


def require_json(headers: Mapping[str, str]) -> None:
    """Raise NotJson for a body of another content type."""
    if has_body(headers) and not is_json(given := content_type(headers)):
        came = f"the body is said to be `{given[:100]}`" if given else "nothing says what the body is"
        raise NotJson(f"{came}: send JSON with the header `Content-Type: application/json`")


def read_json(settings: Settings, sent: bytes, *, model: type[BaseModel] | None) -> Any:
    """Return a body's value, validated if a model is given; raise what ``JsonRequest.json`` raises."""
    value = load(sent)
    # All other lists are bounded by their types.
    if isinstance(value, dict) and isinstance(items := value.get("items"), list):
        require_few_items(settings, len(items))
    if model is None:
        return value
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RequestValidationError(faults_of_body(error)) from None


def faults_of_body(error: ValidationError) -> list[Any]:
    """Return the faults of a body, with their places in the request."""
    return [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
