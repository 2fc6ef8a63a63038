"""Whether the caller of a request is still there: what waits for a job asks, and stops when nobody listens any more.

The server says that a caller has left through the channel on which the body came. It is listened to only while a route
waits, when the body is read and no response has begun, so nobody else reads that channel meanwhile. Pure ASGI.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from corelane.errors import CorelaneError

#: A wait that is over sooner is not worth a task that listens, in seconds: a lone question takes milliseconds.
LISTEN_AFTER_S = 0.05


class Presence:
    """The caller of one request."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.has_left = False

    @asynccontextmanager
    async def telling(self, event: asyncio.Event) -> AsyncIterator[None]:
        """Set an event if the caller leaves meanwhile, once the wait lasts longer than most."""
        listening: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()

        def begin() -> None:
            listening.append(loop.create_task(self._listen(event), name="presence"))

        timer = loop.call_later(LISTEN_AFTER_S, begin)
        try:
            yield
        finally:
            timer.cancel()
            for task in listening:
                task.cancel()

    async def _listen(self, event: asyncio.Event) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except CorelaneError:
            # A body that no route reads is over a limit: the caller is there, and nothing more is heard.
            return
        self.has_left = True
        event.set()


async def _never_leaves() -> dict[str, str]:
    await asyncio.Event().wait()
    return {}


#: A caller that sends nothing, where no request is served.
SILENT = Presence(_never_leaves)

#: The caller of the request that is being served; each request is a task of its own.
PRESENCE: ContextVar[Presence] = ContextVar("presence", default=SILENT)


class Presences:
    """The innermost layer: puts the caller of each request where what waits finds it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            PRESENCE.set(Presence(receive))
        await self._app(scope, receive, send)
