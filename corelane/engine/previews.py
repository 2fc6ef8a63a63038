"""When to preview a long item: about once a second, and less often if that would cost much.

A preview composes a result from all windows read so far, which takes longer the more there are. The longer it took,
the later the next one is.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

#: Items of fewer windows are answered so soon that a preview is of no use.
LONG_WINDOWS = 8

#: Time between two previews of one item, and before the first, in seconds.
PREVIEW_S = 1.0

#: Previews take at most this share of the time.
MOST_SHARE = 0.01

#: Most items previewed between two batches, so that many long items do not delay others.
MOST_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a query from the windows read so far, without its index and id."""

    key: Any
    windows_done: int
    windows_total: int
    result: dict[str, Any]


class PreviewTimes:
    """The long items in progress, and when each is to be previewed next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: The next time of each item, by its key.
        self.next: dict[Hashable, float] = {}

    def add(self, key: Hashable) -> None:
        """Add an item."""
        self.next[key] = self._clock() + PREVIEW_S

    def due(self) -> list[Hashable]:
        """Return a few of the items that are due for a preview, the longest overdue first."""
        now = self._clock()
        return sorted((key for key, at in self.next.items() if at <= now), key=self.next.__getitem__)[:MOST_AT_ONCE]

    def note(self, key: Hashable, took_s: float) -> None:
        """Set the next time of an item whose preview took ``took_s``."""
        self.next[key] = self._clock() + max(PREVIEW_S, took_s / MOST_SHARE)
