"""JSON bodies read by orjson: ten times as fast as the standard library on large jobs, and strict about UTF-8, NaN and
lone surrogates, which it refuses where the standard library lets them through.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Scope

#: One JSON value a line.
NDJSON = "application/x-ndjson"


def is_lines(scope: Scope) -> bool:
    """Whether a request's body is NDJSON."""
    content_type = next((value for name, value in scope.get("headers", ()) if name == b"content-type"), b"")
    return bool(content_type.split(b";")[0].strip().lower() == NDJSON.encode())


class FastRequest(Request):
    """A request whose JSON is read by orjson."""

    async def json(self) -> Any:
        """The body's value; raises json.JSONDecodeError, which FastAPI answers with 422."""
        return orjson.loads(await self.body())


class FastBodyRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The usual handler, over a FastRequest."""
        handle = super().get_route_handler()

        async def handle_fast(request: Request) -> Response:
            return await handle(FastRequest(request.scope, request.receive))

        return handle_fast
