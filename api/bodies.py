"""JSON bodies read by orjson: ten times as fast as the standard library on large jobs, and strict about UTF-8, NaN and
lone surrogates, which it refuses where the standard library lets them through.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import Scope

from corelane.errors import NotJson

#: One JSON value a line.
NDJSON = "application/x-ndjson"


def content_type(scope: Scope) -> str:
    """What a request says its body is, without parameters; empty if it says nothing."""
    given = next((value for name, value in scope.get("headers", ()) if name == b"content-type"), b"")
    return str(given.split(b";")[0].strip().lower().decode("latin-1"))


def is_lines(scope: Scope) -> bool:
    """Whether a request's body is NDJSON."""
    return content_type(scope) == NDJSON


def is_json(given: str) -> bool:
    """Whether a content type is JSON."""
    return given == "application/json" or (given.startswith("application/") and given.endswith("+json"))


def has_body(headers: Headers) -> bool:
    """Whether a request says that a body comes."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def say_what_to_send(given: str) -> str:
    """Tell a caller whose body is not said to be JSON which header says so."""
    came = f"the body is said to be `{given[:100]}`" if given else "nothing says what the body is"
    return f"{came}: send JSON with the header `Content-Type: application/json`"


class FastRequest(Request):
    """A request whose JSON is read by orjson."""

    async def json(self) -> Any:
        """The body's value; raises json.JSONDecodeError, which FastAPI answers with 422."""
        return orjson.loads(await self.body())


class FastBodyRoute(APIRoute):
    """A route that reads its body so, and takes no other."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The usual handler, over a FastRequest; raises NotJson for a body that is said to be something else."""
        handle, takes_body = super().get_route_handler(), self.body_field is not None

        async def handle_fast(request: Request) -> Response:
            if takes_body and has_body(request.headers) and not is_json(given := content_type(request.scope)):
                raise NotJson(say_what_to_send(given))
            return await handle(FastRequest(request.scope, request.receive))

        return handle_fast
