"""Items in progress on a runner, and those whose windows other cores read too.

A long item may be handed out in fragments: neighbouring windows go to another core as bytes. They come back as what was
found in them, or unread. On the other core a fragment is an item like any other, except that its result is what was
found. A document is already in progress while it is tokenized, with the windows known so far. So other cores can begin
to read it.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corelane.domain.dispatch import LEAST_TOKENS
from corelane.engine.batching import WaitingItem, smallest_fit
from corelane.engine.buckets import Bucket
from corelane.engine.passes import Pace
from corelane.engine.task import Query, Result, TaskEngine, Tokenized, Window
from corelane.errors import RunFailed

#: A job with at most this many waiting tokens (three small items) gets a batch of its own, if few rows take less time.
LITTLE_TOKENS = 512

#: A job counts as a small one that someone waits for if at most this many of its items come at a time, all short.
LITTLE_ITEMS = 3

#: Other cores may read windows of an item with at least this many.
LONG_WINDOWS = 8

#: A fragment has windows for at most this many batches, so that its core soon checks for other work.
FRAGMENT_BATCHES = 8

#: Fragments handed out for each core that could take one: it reads one while the next one waits.
FRAGMENTS_EACH = 2

#: The key of a tokenized query, the tokens that it is charged, and the tokens of its windows.
Charge = tuple[Any, int, int]

#: The field of a fragment's result that has what was found.
FOUND = "found"


def fragment_size(left: int, helpers: int, batch: int) -> int:
    """Return the number of windows in an item's next fragment, of ``left`` that wait; 0 if this core keeps them.

    ``helpers`` are the other cores that could take it, ``batch`` the windows of a batch. Half of what waits is shared
    evenly. So fragments become smaller towards the end, and all cores finish at about the same time.
    """
    if not helpers or left < 2 * batch:
        return 0
    return max(batch, min(FRAGMENT_BATCHES * batch, left // (2 * (helpers + 1))))


@dataclass(slots=True)
class ItemInProgress:
    """One query in progress: its waiting windows, the evidence of windows that ran, and the error of a failed row.

    ``is_fragment`` says that it is a fragment of another core's item.
    """

    item: Tokenized
    waiting: WaitingItem
    decoded: list[Any] = field(default_factory=list)
    error: RunFailed | None = None
    is_fragment: bool = False
    #: Number of windows that other cores are reading.
    away: int = 0
    #: Whether more windows will come, because its text is still being tokenized.
    grows: bool = False
    #: The window that is read for each row of tokens, if there are several windows; and the others with that row.
    first: dict[Hashable, Window] = field(default_factory=dict)
    others: dict[Window, list[Window]] = field(default_factory=dict)

    @property
    def evidence(self) -> list[Any]:
        """Return what was found in all windows: equal rows are read once, and the same is found in each."""
        if not self.others:
            return self.decoded
        return self.decoded + [
            replace(found, window=window) for found in self.decoded for window in self.others.get(found.window, ())
        ]

    @property
    def is_over(self) -> bool:
        """Return whether the query needs no more windows, except those in a running batch."""
        return self.error is not None or not (self.waiting.left or self.away or self.grows)


class SharedItems:
    """The part of a runner that hands out windows, and admits those of other cores. Not thread-safe."""

    _task: TaskEngine[Any]
    _ladder: Sequence[Bucket]
    _pace: Pace
    _arrivals: int
    _by_arrival: dict[int, Hashable]
    _progress: dict[Hashable, ItemInProgress]
    _answered: list[tuple[Any, Result]]
    _charges: list[Charge]
    #: The long items in progress, in order.
    _long: dict[Hashable, None]

    @property
    def long_items(self) -> Collection[Any]:
        """Return the keys of long items in progress whose windows other cores may read."""
        return self._long.keys() if self._task.makes_fragments else ()

    def _put(
        self, key: Hashable, item: Tokenized, *, is_one_of_few: bool = False, is_fragment: bool = False
    ) -> ItemInProgress:
        """Put an item into progress."""
        self._arrivals += 1
        query = item.query
        waiting = WaitingItem(self._arrivals, query.owner, query.priority, job=query.job)
        progress = ItemInProgress(item, waiting, is_fragment=is_fragment)
        self._add(progress, item, item.windows)
        self._progress[key] = progress
        is_little = is_one_of_few and waiting.tokens <= LITTLE_TOKENS
        self._pace.heard(f"{query.owner}:{query.job}", is_little=is_little)
        self._by_arrival[self._arrivals] = key
        if len(item.windows) >= LONG_WINDOWS and not is_fragment:
            self._long[key] = None
        return progress

    def _add(self, progress: ItemInProgress, item: Tokenized, windows: Sequence[Window]) -> None:
        """Add windows to those that wait. Of equal rows only the first is read.

        The last digits of logits depend on a row's place in its batch, so equal texts would be in no order.
        """
        if len(item.windows) > 1:
            given, windows = windows, []
            for window in given:
                first = progress.first.setdefault(self._task.row_key(item, window), window)
                (windows if first is window else progress.others.setdefault(first, [])).append(window)
        progress.waiting.add(windows, self._ladder_of(item))
        progress.item = item

    def _ladder_of(self, item: Tokenized) -> Sequence[Bucket]:  # noqa: ARG002  # for tasks whose items do not all mix
        """Return the buckets in which an item's windows may run."""
        return self._ladder

    def _take_out(self, key: Hashable) -> None:
        """Remove a query from progress, with its waiting windows."""
        progress = self._progress.pop(key)
        self._long.pop(key, None)
        del self._by_arrival[progress.waiting.arrival]

    def _grow(self, key: Hashable, item: Tokenized) -> None:
        """Add windows of a document that is being tokenized. With enough of them it is put into progress."""
        progress = self._progress.get(key)
        if progress is not None:
            self._add(progress, item, item.windows[len(progress.item.windows) :])
        elif len(item.windows) >= LONG_WINDOWS:
            self._put(key, item).grows = True

    def _end_growth(self, key: Hashable, progress: ItemInProgress, item: Tokenized | Result) -> None:
        """Add the last windows of a document, or the result that says why it cannot be answered."""
        if isinstance(item, dict):
            self._take_out(key)
            self._answered.append((key, item))
            return
        self._add(progress, item, item.windows[len(progress.item.windows) :])
        progress.grows = False
        tokens = sum(window.length for window in progress.first.values())
        self._charges.append((key, max(LEAST_TOKENS, tokens), tokens))

    def has_rows(self) -> bool:
        """Return whether a batch would do anything now. If not, all that is in progress is read by other cores."""
        is_answered = bool(self._answered) or self._task.unread_tokens(1) > 0
        return is_answered or any(progress.waiting.left or progress.is_over for progress in self._progress.values())

    def windows_left(self, key: Hashable) -> int:
        """Return how many windows of a query wait here."""
        progress = self._progress.get(key)
        return 0 if progress is None else progress.waiting.left

    def grows(self, key: Hashable) -> bool:
        """Return whether more windows of a query will come."""
        progress = self._progress.get(key)
        return progress is not None and progress.grows

    def bucket_of(self, key: Hashable) -> Bucket:
        """Return the bucket in which most of an item's waiting windows run."""
        by_bucket = self._progress[key].waiting.by_bucket
        return max(by_bucket, key=lambda bucket: len(by_bucket[bucket]))

    def hand_out(self, key: Hashable, most: int) -> tuple[list[Window], bytes]:
        """Remove the last windows of a query for another core; return them, and their bytes."""
        progress, bucket = self._progress[key], self.bucket_of(key)
        waiting, line = progress.waiting, progress.waiting.by_bucket[bucket]
        windows = [line.pop() for _ in range(min(most, len(line)))][::-1]
        if not line:
            del waiting.by_bucket[bucket]
        waiting.left -= len(windows)
        waiting.tokens -= sum(window.length for window in windows)
        progress.away += len(windows)
        return windows, self._task.pack(progress.item, windows)

    def take_back(self, key: Hashable, windows: Sequence[Window]) -> None:
        """Put back windows that were not read elsewhere: they are the next to run."""
        progress = self._progress.get(key)
        if progress is None:
            return
        waiting = progress.waiting
        for window in reversed(windows):
            waiting.put_back(window, smallest_fit(window.length, self._ladder))
        progress.away -= len(windows)

    def add_found(self, key: Hashable, windows: Sequence[Window], found: bytes) -> int:
        """Add what another core found in windows; return their tokens, 0 if it cannot be used."""
        progress = self._progress.get(key)
        if progress is None:
            return 0
        try:
            decoded = self._task.unpack_found(progress.item, windows, found)
        except ValueError:
            self.take_back(key, windows)
            return 0
        progress.decoded += decoded
        progress.away -= len(windows)
        return sum(window.length for window in windows)

    def admit_fragment(self, key: Hashable, fragment: bytes, about: Query) -> int:
        """Admit a fragment of another core's item; return its tokens. Raise ValueError if it is not one."""
        return self._put(key, self._task.unpack(fragment, about), is_fragment=True).waiting.tokens
