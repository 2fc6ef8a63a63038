"""The requests that routes get: their JSON bodies, who asks, and how long they wait.

Large bodies are read as ``corelane.submitting.large_bodies`` says.
"""

import json
import re
from functools import partial
from typing import Any, ClassVar, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from api.errors import WrongForm
from api.jobs import CallerWait
from api.request_facts import CALLER, read_headers
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.errors import Forbidden
from corelane.settings import Settings
from corelane.submitting.large_bodies import LARGE_BYTES, BodyRoom, load
from corelane.submitting.submitter import require_few_items

#: The preference `wait=N` in a Prefer header. One that cannot be read is ignored, as RFC 7240 asks.
WAIT_PREFERENCE = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", re.IGNORECASE)

#: The value of a body that was not sent.
NOTHING = object()


class JsonRequest(Request):
    """A request whose JSON is read by orjson, ten times as fast as the standard library for large jobs.

    It refuses invalid UTF-8, NaN and lone surrogates, which the standard library accepts.
    """

    #: The model that validates the request's body, if the body is large.
    model: type[BaseModel] | None = None
    #: The room that is reserved for the request's body.
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
        """Return the body. Its parts are joined on arrival, because a caller may send each byte separately."""
        if not hasattr(self, "_body"):
            body = bytearray()
            async for part in self.stream():
                body += part
            self._body = bytes(body)
        return self._body

    async def json(self) -> Any:
        """Return the parsed body; if the body is large, as an instance of ``model``.

        Raise json.JSONDecodeError, which FastAPI turns into 422; TooLarge; RequestValidationError.
        """
        sent, state = await self.body(), self.app_state
        if len(sent) <= LARGE_BYTES:
            return read_json(state.settings, sent)
        parse = partial(read_json, state.settings, model=self.model)
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
        if wait is None and (preferred := WAIT_PREFERENCE.search(prefer or "")):
            wait = float(preferred[1])
        most = self.app_state.settings.max_wait_s
        return CallerWait(None if wait is None else min(wait, most), self.receive)

    async def read(self, model: type[BaseModel] | None) -> Any:
        """Return the parsed body, as an instance of ``model`` if the body is large; NOTHING if there is no body."""
        self.model = model
        try:
            return await self.json() if await self.body() else NOTHING
        except json.JSONDecodeError as error:
            fault = {"type": "json_invalid", "loc": ("body",), "msg": error.msg, "ctx": {"error": error.msg}}
            raise RequestValidationError([fault]) from None


class SubmitRequest(PlainRequest):
    """A request that submits or changes work."""

    needs = Scope.SUBMIT


class ReadRequest(PlainRequest):
    """A request for the caller's own work."""

    needs = Scope.READ


def require_scope(caller: Caller, scope: Scope) -> None:
    """Raise Forbidden if a caller's key lacks a scope."""
    if scope not in caller.scopes:
        raise Forbidden(f"this API key may not do that: it needs the scope `{scope}`")


def read_json(settings: Settings, sent: bytes, model: type[BaseModel] | None = None) -> Any:
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
        raise WrongForm(faults_of_body(error), model, "") from None


def faults_of_body(error: ValidationError) -> list[Any]:
    """Return the faults of a body, with their places in the request."""
    return [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
