"""Sessions of the console, and the check that changes come from its own pages.

A random id in a cookie stands for an API key for as long as the session lasts. The store has only digests, so reading
it does not allow anyone to take over a session. The key is read with every request, so a session ends with its key.
"""

import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from corelane.domain.api_keys import Key, key_digest
from corelane.errors import Forbidden
from corelane.plugins.console import keys
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.link.link import CommonLink

#: The path of the console, and the paths below it that need no session.
CONSOLE, SIGN_IN, STATIC = "/console", "/console/sign-in", "/console/static/"

COOKIE = "corelane_session"

#: A session lasts this long, in seconds: a working day.
SESSION_S = 12 * 3600

#: Most sessions of one key; beginning another ends the oldest.
MOST_SESSIONS = 20

#: Random bytes of a session's id: 256 bits, like a key.
SESSION_BYTES = 32


class SessionStore:
    """Begins, finds and ends sessions."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def begin(self, digest: str) -> str:
        """Begin a session of the API key with this digest; return its id, which is not stored."""
        session = secrets.token_urlsafe(SESSION_BYTES)
        named, own, now_us = key_digest(session), keys.sessions(digest), time.time_ns() // 1000
        *_, oldest = await self._link.run(
            "write",
            commands=[
                ("SET", keys.session(named), digest, "EX", SESSION_S),
                ("ZADD", own, now_us, named),
                ("EXPIRE", own, SESSION_S),
                ("ZRANGE", own, 0, -1 - MOST_SESSIONS),
            ],
        )
        if oldest:
            ended = [keys.session(each.decode()) for each in oldest]
            await self._link.many([("DEL", *ended), ("ZREM", own, *oldest)])
        return session

    async def find(self, session: str) -> Key | None:
        """Return the active key of a session; None once the session or its key has ended."""
        digest = await self._link("GET", keys.session(key_digest(session)))
        if digest is None:
            return None
        key = (await ApiKeyFinder(self._link).find(digest.decode())).key
        return key if key is not None and key.state(time.time() * 1000) == "active" else None

    async def end(self, session: str) -> None:
        """End the session with this id, if there is one."""
        named = key_digest(session)
        digest = await self._link("GET", keys.session(named))
        if digest is not None:
            await self._link.many([("DEL", keys.session(named)), ("ZREM", keys.sessions(digest.decode()), named)])


def session_of(headers: Mapping[str, str]) -> str:
    """Return the session id of a request; empty without one."""
    found = (pair.partition("=") for pair in headers.get("cookie", "").split("; "))
    return next((value for name, _, value in found if name == COOKIE), "")


def require_own_page(method: str, headers: Mapping[str, str]) -> None:
    """Raise Forbidden if `Sec-Fetch-Site`, or over plain http `Origin`, says that another site asks for a change."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return
    site = headers.get("sec-fetch-site")
    origin = urlsplit(headers.get("origin", "")).netloc
    is_own = site == "same-origin" if site is not None else bool(origin) and origin == headers.get("host", "")
    if not is_own:
        raise Forbidden("changes are taken from the console's own pages only")
