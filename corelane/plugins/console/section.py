"""The section of the console: how its pages identify callers, and refuse requests."""

from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.errors import CorelaneError, Unauthorized
from corelane.plugins.console.auth import CONSOLE, SIGN_IN, STATIC, SessionStore, session_of
from corelane.plugins.console.pages.page_route import refuse_page


class ConsoleSection:
    """Identifies callers by their sessions, each of which stands for an API key."""

    prefix = CONSOLE

    def __init__(self, state: AppState) -> None:
        self._sessions = SessionStore(state.link)

    def is_open(self, path: str) -> bool:
        """Return whether a path needs no caller, such as the files of pages."""
        return path.startswith(STATIC)

    def session_of(self, headers: Mapping[str, str]) -> str:
        """Return the session id of a request; empty without one."""
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
        """Reply with an error, as a page."""
        await refuse_page(scope, receive, send, error)
