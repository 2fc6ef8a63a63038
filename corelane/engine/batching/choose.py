"""Choosing the next batch among the windows of all items in progress. Pure: no clock, no queue.

Windows, not items, are scheduled. Owners share batches by tokens: the one that has had least begins the batch, and row
by row the one that has had least comes next, so that a question waits for no other owner's flood. A newcomer is level
with the owner that has had least: nobody saves up.

Within an owner the higher priority goes first. The jobs of one priority share by tokens in the same way: the job that
has had least goes first, among equals the one with the fewest tokens waiting, so that a question does not wait for its
owner's batch. Within a job the item with the fewest windows left goes first, so that a one-line question does not wait
for a document. An owner that has passed over its oldest item seven times begins with it, so that neither a document nor
a low priority starves.

A batch holds windows of one bucket, the shortest that fits each: rows of a shorter one would cost more padding than the
batch they save (2.5 ms on a CPU, the time of 35 tokens).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from corelane.domain.dispatch import PUBLIC
from corelane.domain.jobs import Priority
from corelane.engine.buckets import Bucket, smallest_fit
from corelane.engine.text.windows import Window

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
    job: str = ""

    @classmethod
    def of(
        cls,
        arrival: int,
        windows: Iterable[Window],
        ladder: Sequence[Bucket],
        owner: str = PUBLIC,
        priority: int = Priority.NORMAL.rank,
        job: str = "",
    ) -> "Waiting":
        """An item's windows, each with the bucket it will run in; ValueError if one fits none."""
        waiting = cls(arrival, owner, priority, job=job)
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
    """What an owner has had: tokens beyond those of the waiting owner that has had least, the same by job within the
    owner, and how often in a row batches that it began passed over its oldest item.
    """

    ahead: int = 0
    passed_over: int = 0
    jobs: dict[str, int] = field(default_factory=dict)

    def charge(self, job: str, tokens: int) -> None:
        """Count tokens that run for a job."""
        self.ahead += tokens
        self.jobs[job] = self.jobs.get(job, 0) + tokens


@dataclass(slots=True, eq=False)
class Line:
    """One owner's items in the order they want to run, and the tokens that wait of each job."""

    share: Share
    items: list[Waiting]
    by_job: dict[str, int]

    @property
    def tokens(self) -> int:
        """All that waits."""
        return sum(self.by_job.values())

    @property
    def rank(self) -> tuple[int, int, int]:
        """The least begins the batch: who has had least; among equals who has least waiting, and who came first."""
        return self.share.ahead, self.tokens, self.items[0].arrival

    def keep_little(self, most_tokens: int) -> bool:
        """Leave out jobs with more tokens waiting; return whether any job is left."""
        self.items = [item for item in self.items if self.by_job[item.job] <= most_tokens]
        return bool(self.items)

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

    ``shares`` is what it remembers between calls: empty at first. A job with at most ``little_tokens`` waiting shares a
    batch that it begins only with others like it: where few rows take less time than many, its question is answered at
    once, and not with the rest of a flood.
    """
    lines = _line_up(items, shares)
    if not lines:
        return None
    first = min(lines, key=lambda line: line.rank)
    oldest = min(item.arrival for item in first.items)
    first.share.passed_over = 0 if first.items[0].arrival == oldest else first.share.passed_over + 1
    bucket = next(iter(first.items[0].by_bucket))
    if first.by_job[first.items[0].job] <= little_tokens:
        lines = [line for line in lines if line.keep_little(little_tokens)]
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
    return [_line_of(shares.setdefault(owner, Share()), waiting) for owner, waiting in by_owner.items()]


def _line_of(share: Share, items: list[Waiting]) -> Line:
    """One owner's items in order; its jobs count from the least of those that may go first, those that left do not."""
    by_job: dict[str, int] = {}
    came: dict[str, int] = {}
    for item in items:
        by_job[item.job] = by_job.get(item.job, 0) + item.tokens
        came[item.job] = min(item.arrival, came.get(item.job, item.arrival))
    foremost = min(item.priority for item in items)
    least = min(share.jobs.get(item.job, 0) for item in items if item.priority == foremost)
    share.jobs = {job: max(0, share.jobs.get(job, 0) - least) for job in by_job}

    def turn(item: Waiting) -> tuple[int, ...]:
        return item.priority, share.jobs[item.job], by_job[item.job], came[item.job], item.left, item.arrival

    items.sort(key=_arrival if share.passed_over >= OLDEST_TURN - 1 else turn)
    return Line(share, items, by_job)


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
            line.share.charge(row[0].job, row[1].length)
        line = min(sources, key=lambda source: source.share.ahead, default=first)
    return rows


def _arrival(item: Waiting) -> int:
    return item.arrival
