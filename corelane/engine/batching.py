"""Choosing the next batch among the windows of all items in progress. Pure: no clock, no queue.

Windows, not items, are scheduled. Owners share batches by tokens: the one that has had least begins the batch, and row
by row the one that has had least comes next, so that a question waits for no other owner's flood. A newcomer is level
with the owner that has had least: nobody saves up. Within an owner the item with the fewest windows left goes first, so
that a one-line question never waits for a document, and before that the one of higher priority; an owner that has
passed over its oldest item seven times begins with it, so that neither a document nor a low priority starves. A batch
holds windows of one bucket, the shortest that fits each: rows of a shorter one would cost more padding than the batch
they save (2.5 ms on a CPU, the time of 35 tokens).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from corelane.engine.buckets import Bucket, smallest_fit
from corelane.engine.windows import Window
from corelane.jobs import Priority
from corelane.lanes import PUBLIC

#: Of so many batches that an owner begins, it begins one with its oldest item at least.
OLDEST_TURN = 8


@dataclass(slots=True)
class Waiting:
    """The windows of one item that have not run; ``arrival`` counts items in the order they came."""

    arrival: int
    owner: str = PUBLIC
    priority: int = Priority.NORMAL.rank
    left: int = 0
    tokens: int = 0
    by_bucket: dict[Bucket, deque[Window]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        arrival: int,
        windows: Iterable[Window],
        ladder: Sequence[Bucket],
        owner: str = PUBLIC,
        priority: int = Priority.NORMAL.rank,
    ) -> "Waiting":
        """An item's windows, each with the bucket it will run in; ValueError if one fits none."""
        waiting = cls(arrival, owner, priority)
        for window in windows:
            waiting.by_bucket.setdefault(smallest_fit(window.length, ladder), deque()).append(window)
            waiting.left += 1
            waiting.tokens += window.length
        return waiting

    def take(self, bucket: Bucket) -> Window:
        """The first window of a bucket; it waits no longer. KeyError if there is none."""
        windows = self.by_bucket[bucket]
        window = windows.popleft()
        if not windows:
            del self.by_bucket[bucket]
        self.left -= 1
        self.tokens -= window.length
        return window


@dataclass(slots=True)
class Share:
    """Tokens run for an owner beyond those of the waiting owner that has had least, and how often in a row batches that
    it began passed over its oldest item.
    """

    ahead: int = 0
    passed_over: int = 0


@dataclass(slots=True, eq=False)
class Line:
    """One owner's items in the order they want to run."""

    share: Share
    items: list[Waiting]

    @property
    def tokens(self) -> int:
        """All that waits."""
        return sum(item.tokens for item in self.items)

    @property
    def rank(self) -> tuple[int, int, int]:
        """The least begins the batch: who has had least; among equals who has least waiting, and who came first."""
        return self.share.ahead, self.tokens, self.items[0].arrival

    def windows(self, bucket: Bucket) -> Iterator[tuple[Waiting, Window]]:
        """Take the windows of one bucket, one by one."""
        for item in self.items:
            while bucket in item.by_bucket:
                yield item, item.take(bucket)


def full(bucket: Bucket) -> int:
    """All rows of a bucket."""
    return bucket.rows


def next_batch(
    items: Iterable[Waiting],
    shares: dict[str, Share],
    most_rows: Callable[[Bucket], int] = full,
    little_tokens: int = 0,
) -> tuple[Bucket, list[tuple[Waiting, Window]]] | None:
    """A bucket and at most ``most_rows`` of windows, taken from the items; None if nothing waits.

    ``shares`` is what it remembers between calls: empty at first. An owner with at most ``little_tokens`` waiting
    shares a batch that it begins only with others like it: where few rows take less time than many, its question is
    answered at once, and not with the rest of a flood.
    """
    lines = _line_up(items, shares)
    if not lines:
        return None
    first = min(lines, key=lambda line: line.rank)
    oldest = min(item.arrival for item in first.items)
    first.share.passed_over = 0 if first.items[0].arrival == oldest else first.share.passed_over + 1
    bucket = next(iter(first.items[0].by_bucket))
    if first.tokens <= little_tokens:
        lines = [line for line in lines if line.tokens <= little_tokens]
    return bucket, _alternate(first, lines, bucket, most_rows(bucket))


def _line_up(items: Iterable[Waiting], shares: dict[str, Share]) -> list[Line]:
    """The owners that wait, and their shares counted from the least; who is gone and owes nothing is forgotten."""
    by_owner: dict[str, list[Waiting]] = {}
    for item in items:
        if item.left:
            by_owner.setdefault(item.owner, []).append(item)
    least = min((shares[owner].ahead if owner in shares else 0 for owner in by_owner), default=0)
    for owner in list(shares):
        shares[owner].ahead = max(0, shares[owner].ahead - least)
        if owner not in by_owner and (not by_owner or not shares[owner].ahead):
            del shares[owner]
    lines = [Line(shares.setdefault(owner, Share()), waiting) for owner, waiting in by_owner.items()]
    for line in lines:
        oldest_first = line.share.passed_over >= OLDEST_TURN - 1
        line.items.sort(key=_arrival if oldest_first else _size)
    return lines


def _alternate(first: Line, lines: list[Line], bucket: Bucket, most: int) -> list[tuple[Waiting, Window]]:
    """Rows of one bucket, each from the owner that has had least, the very first from ``first``."""
    rows: list[tuple[Waiting, Window]] = []
    sources = {line: line.windows(bucket) for line in lines}
    line = first
    while sources and len(rows) < most:
        row = next(sources[line], None)
        if row is None:
            del sources[line]
        else:
            rows.append(row)
            line.share.ahead += row[1].length
        line = min(sources, key=lambda source: source.share.ahead, default=first)
    return rows


def _arrival(item: Waiting) -> int:
    return item.arrival


def _size(item: Waiting) -> tuple[int, int, int]:
    return item.priority, item.left, item.arrival
