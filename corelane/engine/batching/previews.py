"""When to look at what was found of a long item so far: about once a second, and never so often that it costs much.

Looking composes an answer from all windows found, which takes longer the more there are: the longer it took, the longer
until the next look.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

#: Items of fewer windows are answered too soon for anybody to want half an answer.
LONG_WINDOWS = 8

#: Time between two looks at one item, and before the first, in seconds.
LOOK_S = 1.0

#: Looking takes this share of the time at most.
MOST_SHARE = 0.01

#: Items looked at between two batches, so that many long ones at a time hold up nobody.
MOST_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SoFar:
    """What was found of a query when some of its windows were read: a result in stored form, less index and id."""

    key: Any
    windows_done: int
    windows_total: int
    result: dict[str, Any]


class LongReads:
    """The long items in progress, and when each is looked at next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[Hashable, float] = {}

    def add(self, key: Hashable, windows: int) -> None:
        """Take in an item, if it is long."""
        if windows >= LONG_WINDOWS:
            self._next[key] = self._clock() + LOOK_S

    def look(self, look_at: Callable[[Hashable], SoFar | None]) -> list[SoFar]:
        """Look at those whose time has come, at a few of them, first at those that have waited longest."""
        if not self._next:
            return []
        now, found = self._clock(), []
        due = sorted((key for key, at in self._next.items() if at <= now), key=self._next.__getitem__)
        for key in due[:MOST_AT_ONCE]:
            began = self._clock()
            if (so_far := look_at(key)) is not None:
                found.append(so_far)
            ended = self._clock()
            self._next[key] = ended + max(LOOK_S, (ended - began) / MOST_SHARE)
        return found

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget items; those that are not long are no error."""
        for key in keys:
            self._next.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._next.clear()
