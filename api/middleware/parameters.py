"""Query parameters that a route does not know are refused: one that is misspelt would change nothing, unnoticed."""

import difflib

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute


async def refuse_unknown(request: Request) -> None:
    """Raise RequestValidationError for parameters that the route of this request does not take."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute) or not route.path.startswith("/v1/"):
        return
    known = parameters_of(route)
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "unknown_parameter", "loc": ("query", name), "msg": _say(name, known)} for name in unknown]
        )


def parameters_of(route: APIRoute) -> tuple[str, ...]:
    """Return the query parameters of a route and of what it depends on, in order."""
    return tuple(dict.fromkeys(_walk(route.dependant)))


def _walk(dependant: Dependant) -> list[str]:
    own = [field.alias for field in dependant.query_params]
    return own + [name for each in dependant.dependencies for name in _walk(each)]


def _say(name: str, known: tuple[str, ...]) -> str:
    """The nearest parameter, and all there are."""
    if not known:
        return "this route takes no query parameters"
    listed = ", ".join(f"`{each}`" for each in known)
    [nearest] = difflib.get_close_matches(name, known, n=1) or [""]
    hint = f", did you mean `{nearest}`?" if nearest else ""
    return f"there is no such query parameter{hint} (this route takes {listed})"
