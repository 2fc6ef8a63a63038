"""Choosing the next batch among the windows of all items in progress. Pure: no clock, no queue.

Windows, not items, are scheduled. The item with the fewest windows left goes first, so that a one-line question never
waits for a document; every fourth batch begins with the oldest item, so that a document never starves. A batch holds
windows of one bucket, the shortest that fits each.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from corelane.engine.buckets import Bucket, smallest_fit
from corelane.engine.windows import Window

#: One batch in so many begins with the oldest item.
OLDEST_TURN = 4


@dataclass(slots=True)
class Waiting:
    """The windows of one item that have not run; ``arrival`` counts items in the order they came."""

    arrival: int
    left: int = 0
    tokens: int = 0
    by_bucket: dict[Bucket, deque[Window]] = field(default_factory=dict)

    @classmethod
    def of(cls, arrival: int, windows: Iterable[Window], ladder: Sequence[Bucket]) -> "Waiting":
        """An item's windows, each with the bucket it will run in; ValueError if one fits none."""
        waiting = cls(arrival)
        for window in windows:
            waiting.by_bucket.setdefault(smallest_fit(window.length, ladder), deque()).append(window)
            waiting.left += 1
            waiting.tokens += window.length
        return waiting

    def take(self, bucket: Bucket, most: int) -> list[Window]:
        """Up to ``most`` windows of a bucket, in order; they wait no longer."""
        windows = self.by_bucket.get(bucket, deque())
        taken = [windows.popleft() for _ in range(min(most, len(windows)))]
        if not windows:
            self.by_bucket.pop(bucket, None)
        self.left -= len(taken)
        self.tokens -= sum(window.length for window in taken)
        return taken


def next_batch(items: Iterable[Waiting], turn: int) -> tuple[Bucket, list[tuple[Waiting, Window]]] | None:
    """A bucket and at most its rows of windows, taken from the items; None if nothing waits."""
    order = sorted((item for item in items if item.left), key=lambda item: (item.left, item.arrival))
    if not order:
        return None
    if turn % OLDEST_TURN == 0:
        order.sort(key=lambda item: item.arrival)
    bucket = next(iter(order[0].by_bucket))
    rows: list[tuple[Waiting, Window]] = []
    for item in order:
        rows += [(item, window) for window in item.take(bucket, bucket.rows - len(rows))]
        if len(rows) == bucket.rows:
            break
    return bucket, rows
