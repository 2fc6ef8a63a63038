"""Sections: pages below a path that browsers open, with a way of their own to know who asks.

A browser sends a cookie by itself, so it counts for the pages of its section alone and never for the JSON API.
"""

from collections.abc import Mapping
from typing import Protocol

from starlette.types import Receive, Scope, Send

from corelane.domain.api_keys import Caller
from corelane.errors import CorelaneError

#: Of a header with cookies no more than this is read, in characters. Our own begin with OWN, and none is longer.
MOST_COOKIES, OWN, MOST_CHARS = 8 * 1024, "corelane_", 100


class Section(Protocol):
    """The pages below a path."""

    #: The path, without a slash at its end.
    prefix: str

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no caller: files of pages."""
        ...

    def session_of(self, headers: Mapping[str, str]) -> str:
        """Return the session that a request carries; empty without one."""
        ...

    async def identify(self, session: str, path: str) -> Caller | None:
        """Return the caller of a session, None for pages that need none; raise Unauthorized."""
        ...

    async def refuse(self, scope: Scope, receive: Receive, send: Send, error: CorelaneError) -> None:
        """Answer with an error, as a page."""
        ...


def own_cookies(sent: str) -> str:
    """Return those of a request's cookies that are ours, as they were sent.

    FastAPI reads all cookies of a request, by the standard library, whose time grew by the square of a header's length
    before Python 3.11.10.
    """
    pairs = (pair.strip() for pair in sent[:MOST_COOKIES].split(";"))
    return "; ".join(pair for pair in pairs if pair.startswith(OWN) and len(pair) <= MOST_CHARS)
