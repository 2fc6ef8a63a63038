"""Owners where keys are not checked. Any text sent as a key makes an owner, so their number is bounded.

An owner takes a place with its first request that may store data, and keeps the place while data of it is stored.
"""

import time
from collections.abc import Callable

from corelane.errors import Overloaded
from corelane.store.link.link import CommonLink

#: A process remembers this long that an owner has its place, in seconds.
KNOWN_S = 60.0

#: An owner without jobs and files loses its place after this long, in seconds; above KNOWN_S and the longest upload.
IDLE_S = 3600

#: An owner for whom there is no place is asked to come back after this time, in seconds.
RETRY_AFTER_S = 600


class Owners:
    """Gives places to owners. One per process."""

    def __init__(self, link: CommonLink, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._most = most
        self._clock = clock
        self._known: dict[str, float] = {}

    async def admit(self, owner: str) -> None:
        """Give an owner a place, or renew it; raise Overloaded if all places are taken."""
        now = self._clock()
        if now - self._known.get(owner, float("-inf")) < KNOWN_S:
            return
        if not await self._link.run("admit_owner", owner=owner, most=self._most):
            raise Overloaded(
                f"{self._most:,} texts were sent as keys here, which checks none: use one of those, or no key, or have "
                "the operator raise CORELANE_MAX_OWNERS or check keys (CORELANE_AUTH=required)",
                RETRY_AFTER_S,
            )
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[owner] = now
