"""Sign in with an API key, and sign out, if the service requires keys."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from starlette.responses import RedirectResponse

from api.middleware.key_cache import KeyCache
from corelane.domain.api_keys import key_digest
from corelane.errors import Unauthorized
from corelane.log import get_logger
from corelane.plugins.console.auth import CONSOLE, COOKIE, SESSION_S, SessionStore, session_of
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import HEADERS, base_of, render

log = get_logger(__name__)

#: The page to open after signing in: a path below the console, so it cannot lead to another site.
NEXT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./~-]{0,200}")


def make_router(sessions: SessionStore, keys: KeyCache) -> APIRouter:
    """Return the routes that begin and end sessions."""
    router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

    @router.get("/sign-in")
    async def sign_in_page(request: Request, next: Annotated[str, Query(max_length=300)] = "") -> Response:
        """Show the form."""
        if not request.app.state.app_state.settings.requires_keys:
            return RedirectResponse(base_of(request), 303, HEADERS)
        return render(request, "sign_in.html", next=next, error=None)

    @router.post("/sign-in")
    async def sign_in(
        request: Request,
        key: Annotated[str, Form(max_length=500)] = "",
        next: Annotated[str, Form(max_length=300)] = "",
    ) -> Response:
        """Begin a session of an API key. Its cookie is hidden from scripts and not sent by other sites' pages."""
        try:
            found = await keys.find(key.strip())
        except Unauthorized as error:
            return render(request, "sign_in.html", 401, next=next, error=error.detail)
        session = await sessions.begin(key_digest(key.strip()))
        log.info("console_signed_in", key=found.id, name=found.name)
        to = base_of(request) + (next if NEXT.fullmatch(next) else "")
        response = RedirectResponse(to, 303, HEADERS)
        # Without a path the browser uses the console's, also behind a proxy's prefix.
        response.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_S,
            path=None,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    @router.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        """End the session and delete its cookie."""
        await sessions.end(session_of(request.headers))
        response = RedirectResponse(base_of(request) + "sign-in", 303, HEADERS)
        response.set_cookie(COOKIE, "", max_age=0, path=None, httponly=True, samesite="strict")
        return response

    return router
