"""What the connections of one process share: the application, their bounds, and the list of those that are open."""

import asyncio
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Protocol

from hypercorn.typing import LifespanState
from starlette.types import ASGIApp

from api.server.heads import Head
from api.server.responses import Dates


class Open(Protocol):
    """A connection that is open."""

    def stop(self) -> None:
        """Serve nothing more than what is in progress."""

    def cut(self) -> None:
        """End at once."""


class HandOver(Protocol):
    """How a connection that turns out to speak HTTP/2 is served on."""

    def __call__(self, transport: asyncio.Transport, data: bytes, upgrade: Head | None) -> None:
        """Take over a connection with the bytes that have come, and the request that asked for it if one did."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one connection: ``requests`` in progress, and ``stall_s`` in which its caller reads nothing."""

    requests: int
    stall_s: float


@dataclass(slots=True)
class Serving:
    """The server of one process."""

    app: ASGIApp
    loop: asyncio.AbstractEventLoop
    bounds: Bounds
    state: LifespanState
    hand_over: HandOver
    is_stopping: bool = False
    dates: Dates = field(default_factory=Dates)
    open: set[Open] = field(default_factory=set)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _context: Context = field(default_factory=copy_context)

    def blank(self) -> Context:
        """Return a context in which no request has left anything."""
        return self._context.copy()

    def leave(self, connection: Open) -> None:
        """Note that a connection has come to its end."""
        self.open.discard(connection)
        self._left.set()

    async def end(self, grace_s: float, cut_s: float) -> None:
        """End the connections: what is in progress has ``grace_s``; wait ``cut_s`` for those that were cut."""
        self.is_stopping = True
        for connection in list(self.open):
            connection.stop()
        if not await self._rest(grace_s):
            for connection in list(self.open):
                connection.cut()
            await self._rest(cut_s)

    async def _rest(self, seconds: float) -> bool:
        """Wait until no connection is open; return False after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                while self.open:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True
