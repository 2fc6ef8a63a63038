"""Sections: pages below a path that browsers open, with their own way to identify the caller.

A browser sends cookies by itself, so a cookie is valid only for the pages of its section, never for the JSON API.
"""

from collections.abc import Mapping
from typing import Protocol

from starlette.types import Receive, Scope, Send

from corelane.domain.api_keys import Caller
from corelane.errors import CorelaneError

#: At most MOST_COOKIES characters of a header with cookies are read. Names of Corelane's cookies begin with OWN. None
#: of its cookies is longer than MOST_CHARS.
MOST_COOKIES, OWN, MOST_CHARS = 8 * 1024, "corelane_", 100


class Section(Protocol):
    """The pages below a path."""

    #: The path, without a slash at its end.
    prefix: str

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no caller, as files of pages do."""
        ...

    def session_of(self, headers: Mapping[str, str]) -> str:
        """Return the session in a request; empty if there is none."""
        ...

    async def identify(self, session: str, path: str) -> Caller | None:
        """Return the caller of a session, None for pages that need no caller; raise Unauthorized."""
        ...

    async def refuse(self, scope: Scope, receive: Receive, send: Send, error: CorelaneError) -> None:
        """Respond with an error, as a page."""
        ...


def own_cookies(sent: str) -> str:
    """Return only Corelane's own cookies of a request, unchanged.

    FastAPI reads all cookies of a request with the standard library. Before Python 3.11.10 that took a time that grew
    with the square of a header's length.
    """
    pairs = (pair.strip() for pair in sent[:MOST_COOKIES].split(";"))
    return "; ".join(pair for pair in pairs if pair.startswith(OWN) and len(pair) <= MOST_CHARS)
