"""Who asks for a page of the console, by the cookie of a session, and which changes come from its own pages."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.errors import CorelaneError, Forbidden, Unauthorized
from corelane.plugins.console.sessions import SessionStore

#: Where the console is, and what of it needs no session.
CONSOLE, SIGN_IN, STATIC = "/console", "/console/sign-in", "/console/static/"

COOKIE = "corelane_session"


def cookie_of(headers: Mapping[str, str], name: str) -> str:
    """Return one of our own cookies; empty without it."""
    found = (pair.partition("=") for pair in headers.get("cookie", "").split("; "))
    return next((value for key, _, value in found if key == name), "")


def session_of(headers: Mapping[str, str]) -> str:
    """Return the id of the session that a request carries; empty without one."""
    return cookie_of(headers, COOKIE)


class ConsoleSection:
    """Knows callers by their sessions, each of which stands for an API key."""

    prefix = CONSOLE

    def __init__(self, state: AppState) -> None:
        self._sessions = SessionStore(state.link)

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no caller: files of pages."""
        return path.startswith(STATIC)

    def session_of(self, headers: Mapping[str, str]) -> str:
        """Return the session that a request carries; empty without one."""
        return session_of(headers)

    async def identify(self, session: str, path: str) -> Caller | None:
        """Return the caller with the active key of a session; the sign-in page needs none. Raise Unauthorized."""
        if path == SIGN_IN:
            return None
        key = await self._sessions.find(session) if session else None
        if key is None:
            raise Unauthorized("you are not signed in, or your session has ended: sign in with an API key")
        return Caller(key.owner, key.scopes, key.name)

    async def refuse(self, scope: Scope, receive: Receive, send: Send, error: CorelaneError) -> None:
        """Answer with an error, as a page."""
        from corelane.plugins.console.pages.page_route import refuse_page

        await refuse_page(scope, receive, send, error)


def require_own_page(method: str, headers: Mapping[str, str]) -> None:
    """Raise Forbidden for a change that another site's page asks for.

    Browsers say where a request comes from: in `Sec-Fetch-Site`, and over plain http in `Origin`.
    """
    if method in ("GET", "HEAD", "OPTIONS"):
        return
    site = headers.get("sec-fetch-site")
    origin = urlsplit(headers.get("origin", "")).netloc
    is_own = site == "same-origin" if site is not None else bool(origin) and origin == headers.get("host", "")
    if not is_own:
        raise Forbidden("changes are taken from the console's own pages only")
