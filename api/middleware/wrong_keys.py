"""Wrong keys: a caller that sends many of them waits for each response. A good key never waits.

An address is not blocked: behind a proxy or a company's gateway all callers may share it.
"""

import asyncio
import time
from collections import OrderedDict

#: Wrong keys of one address in a window that are answered at once, and the length of the window, in seconds.
FREE, WINDOW_S = 20, 60.0

#: How long the response to each further wrong key is delayed, in seconds.
PAUSE_S = 1.0

#: Most addresses that are remembered.
MOST_ADDRESSES = 10_000


class WrongKeys:
    """Counts the wrong keys of each address. Belongs to one event loop."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def slow(self, address: str) -> None:
        """Count a wrong key, and wait if its sender tried many."""
        if self.count(address, time.monotonic()):
            await asyncio.sleep(PAUSE_S)

    def count(self, address: str, now_s: float) -> bool:
        """Count a wrong key; return whether its sender must wait."""
        begun_s, tried = self._seen.pop(address, (now_s, 0))
        if now_s - begun_s >= WINDOW_S:
            begun_s, tried = now_s, 0
        self._seen[address] = begun_s, tried + 1
        if len(self._seen) > MOST_ADDRESSES:
            self._seen.popitem(last=False)
        return tried >= FREE
