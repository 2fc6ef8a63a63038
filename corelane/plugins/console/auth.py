"""Read the session of a request for a page of the console, and refuse changes that other sites' pages ask for."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from corelane.errors import Forbidden

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
