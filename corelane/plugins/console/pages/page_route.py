"""The class of all routes of the console: failures become pages, and changes are accepted only from the console's
pages.

A route of the console calls the function behind the JSON route, so both have the same checks. Console routes also have
the JSON API's dependencies (``ReadCaller``, ``SubmitCaller``, ``AdminCaller``).
"""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from api.errors import HTTP_CODES, RETRY_AFTER_S, count_problem, status_of
from api.request_facts import REQUEST_FACTS
from corelane import errors
from corelane.errors.sentences import place_of, relevant, sentence
from corelane.log import get_logger
from corelane.plugins.console.auth import SIGN_IN, require_own_page
from corelane.plugins.console.pages.render import HEADERS, base_of, is_htmx, render

log = get_logger(__name__)

#: Sentences for failures that the framework reports.
DETAILS = {404: "there is no such page", 405: "this page does not take that"}


class PageRoute(APIRoute):
    """A route of the console."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler; it turns failures into pages, and refuses changes from other sites."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            try:
                require_own_page(request.method, request.headers)
                return await handle(request)
            except errors.CorelaneError as error:
                return failed(request, error)
            except RequestValidationError as error:
                [fault, *_] = relevant(error.errors())
                detail = f"{place_of(fault).removeprefix('body.')}: {sentence(fault)}"
                return _problem(request, 422, errors.InvalidInput.code, detail)
            except HTTPException as error:
                cause = error.__cause__
                if isinstance(cause, errors.CorelaneError):
                    return failed(request, cause)
                code = HTTP_CODES.get(error.status_code, "http_error")
                return _problem(request, error.status_code, code, DETAILS.get(error.status_code, str(error.detail)))
            except Exception as error:
                log.error("unforeseen_error", path=request.url.path, exc_info=error)
                detail = "something broke that should not; the service's log says what"
                return _problem(request, 500, "internal", detail)

        return handle_page


async def refuse_page(scope: Scope, receive: Receive, send: Send, error: errors.CorelaneError) -> None:
    """Reply to a page request with an error, before the routes. Callers without a session are redirected to sign in."""
    request = Request(scope)
    await failed(request, error)(scope, receive, send)


def failed(request: Request, error: errors.CorelaneError) -> Response:
    """Return the page of an error."""
    is_stream = request.headers.get("accept") == "text/event-stream"
    if isinstance(error, errors.Unauthorized) and request.url.path != SIGN_IN and not is_stream:
        return _to_sign_in(request)
    retry_after_s = error.retry_after_s if isinstance(error, errors.Overloaded) else RETRY_AFTER_S
    return _problem(request, status_of(error), error.code, error.detail, retry_after_s)


def _problem(request: Request, status: int, code: str, detail: str, retry_after_s: int = RETRY_AFTER_S) -> Response:
    count_problem(request, code)
    template = "problem_part.html" if is_htmx(request) else "problem.html"
    title = HTTPStatus(status).phrase
    request_id = REQUEST_FACTS.get().request_id
    response = render(request, template, status, title=title, code=code, detail=detail, request_id=request_id)
    if status in (429, 503):
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def _to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page, which later returns to the requested page."""
    count_problem(request, errors.Unauthorized.code)
    address = base_of(request) + "sign-in"
    if is_htmx(request):
        return Response(status_code=401, headers={**HEADERS, "HX-Redirect": "sign-in"})
    if request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        # After a link on another site the browser does not send the cookie; from this page it does.
        return render(request, "again.html")
    if request.method == "GET" and request.url.path not in ("/console", "/console/"):
        address += f"?next={request.url.path.removeprefix('/console/')}"
    return RedirectResponse(address, 303, HEADERS)
