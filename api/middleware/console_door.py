"""The door of the console: who asks for a page, by the cookie of a session, and which changes come from its own pages.

A browser sends the cookie by itself, so it counts for the pages alone and never for the JSON API.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from corelane.domain.api_keys import Key
from corelane.errors import Forbidden, Unauthorized
from corelane.store.sessions import SessionStore

#: Where the console is, and what of it needs no session.
CONSOLE, SIGN_IN, STATIC = "/console", "/console/sign-in", "/console/static/"

COOKIE = "corelane_session"

#: Of a header with cookies no more than this is read, in characters. Our own begin with OWN, and none is longer.
MOST_COOKIES, OWN, MOST_CHARS = 8 * 1024, "corelane_", 100


def own_cookies(sent: str) -> str:
    """Return those of a request's cookies that are ours, as they were sent.

    FastAPI reads all cookies of a request, by the standard library, whose time grew by the square of a header's length
    before Python 3.11.10.
    """
    pairs = (pair.strip() for pair in sent[:MOST_COOKIES].split(";"))
    return "; ".join(pair for pair in pairs if pair.startswith(OWN) and len(pair) <= MOST_CHARS)


def cookie_of(headers: Mapping[str, str], name: str) -> str:
    """Return one of our own cookies; empty without it."""
    found = (pair.partition("=") for pair in headers.get("cookie", "").split("; "))
    return next((value for key, _, value in found if key == name), "")


def session_of(headers: Mapping[str, str]) -> str:
    """Return the id of the session that a request carries; empty without one."""
    return cookie_of(headers, COOKIE)


class ConsoleDoor:
    """Finds the key behind a session."""

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions

    async def find(self, session: str) -> Key:
        """Return the active key of a session; raise Unauthorized."""
        key = await self._sessions.find(session) if session else None
        if key is None:
            raise Unauthorized("you are not signed in, or your session has ended: sign in with an API key")
        return key


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
