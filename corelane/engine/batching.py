"""Choose the next batch among the windows of all items in progress. No queue.

Windows, not items, are scheduled. The order, in three rules:

1. Owners share by tokens ÷ share, row by row: the one that has had least is next. Without work it saves up a little.
2. Within an owner the higher priority is next, then small jobs, then the job that has had least, then the item with the
fewest windows left.
3. An owner that has passed over its oldest item seven times begins with it.

So a small job waits neither for a flood of another owner nor for a document, and documents, large jobs and low
priorities do not starve. A new job starts level with the job that was served last (self-clocked fair queueing,
Golestani, 1994). If it started level with the jobs that still wait, new jobs would overtake a longer one again and
again.

This module decides which item begins the batch. ``choose`` decides which buckets' windows may join it, and how many. A
batch holds windows of one bucket, the shortest that fits each, or of neighbouring buckets if that is faster
(``passes``). Of a job's windows those nearest in length to the first one join it, as they need least padding.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from corelane.domain.dispatch import PUBLIC, SMALL_TOKENS
from corelane.domain.jobs import Priority
from corelane.engine.buckets import Bucket
from corelane.engine.task import Window

#: An owner begins at least one in this many batches with its oldest item.
OLDEST_TURN = 8

#: Most tokens that an owner saves up while it has no work: a dozen short items, a tenth of a second of a core.
SAVED_TOKENS = 2048

#: A function that decides the shape of a batch. It gets the bucket of the batch's first window, and by bucket how many
#: windows may join. It returns the buckets of the batch, the shortest first, and its number of rows.
Choose = Callable[[Bucket, Mapping[Bucket, int]], tuple[Sequence[Bucket], int]]


def smallest_fit(length: int, ladder: Sequence[Bucket]) -> Bucket:
    """Return the shortest bucket that holds ``length`` tokens; ValueError if none does. The ladder grows in length."""
    for bucket in ladder:
        if bucket.length >= length:
            return bucket
    raise ValueError(f"{length} tokens fit no bucket; the longest has {ladder[-1].length}")


@dataclass(slots=True)
class WaitingItem:
    """The windows of one item that have not run; ``arrival`` numbers items in the order they came."""

    arrival: int
    owner: str = PUBLIC
    priority: int = Priority.NORMAL.rank
    left: int = 0
    tokens: int = 0
    by_bucket: dict[Bucket, deque[Window]] = field(default_factory=dict)
    job: str = ""
    share: float = 1.0

    @property
    def next_length(self) -> int:
        """Return the length of its next window."""
        return next(iter(self.by_bucket.values()))[0].length

    def add(self, windows: Iterable[Window], ladder: Sequence[Bucket]) -> None:
        """Add windows behind those that wait; ValueError if a window fits no bucket."""
        for window in windows:
            self.by_bucket.setdefault(smallest_fit(window.length, ladder), deque()).append(window)
            self.left += 1
            self.tokens += window.length

    def put_back(self, window: Window, bucket: Bucket) -> None:
        """Add a window before those that wait."""
        self.by_bucket.setdefault(bucket, deque()).appendleft(window)
        self.left += 1
        self.tokens += window.length

    def take(self, bucket: Bucket) -> Window:
        """Remove and return the first window of a bucket; KeyError if there is none."""
        windows = self.by_bucket[bucket]
        window = windows.popleft()
        if not windows:
            del self.by_bucket[bucket]
        self.left -= 1
        self.tokens -= window.length
        return window


@dataclass(slots=True)
class Turns:
    """The tokens that each job has had beyond the job with the fewest.

    A new job begins at ``served``, the count of the job that was served last.
    """

    had: dict[str, int] = field(default_factory=dict)
    served: int = 0

    def charge(self, job: str, tokens: int) -> None:
        """Count tokens that were run for a job."""
        self.had[job] = self.had.get(job, self.served) + tokens
        self.served = max(self.served, self.had[job])

    def level(self, jobs: Iterable[str]) -> None:
        """Subtract the least count of these jobs from all counts. Other jobs have ended, and are forgotten."""
        had = {job: self.had.get(job, self.served) for job in jobs}
        least = min(had.values(), default=0)
        self.had = {job: tokens - least for job, tokens in had.items()}
        self.served = max(0, self.served - least)


@dataclass(slots=True)
class Share:
    """The service that an owner has had. ``small`` and ``larger`` are the turns of its jobs.

    ``ahead`` is its tokens beyond those of the waiting owner that has had least, below zero while it saves up.
    ``passed_over`` is how many batches in a row it began without its oldest item.
    """

    ahead: float = -SAVED_TOKENS
    passed_over: int = 0
    small: Turns = field(default_factory=Turns)
    larger: Turns = field(default_factory=Turns)

    def charge(self, item: WaitingItem, tokens: int, *, is_small: bool) -> None:
        """Count tokens that were run for an item; for the owner they count less the larger its share is."""
        self.ahead += tokens / item.share
        (self.small if is_small else self.larger).charge(item.job, tokens)

    def level(self, by_job: Mapping[str, int]) -> None:
        """Level the turns of the jobs that wait, given their tokens."""
        self.small.level(job for job, tokens in by_job.items() if tokens <= SMALL_TOKENS)
        self.larger.level(job for job, tokens in by_job.items() if tokens > SMALL_TOKENS)

    def turn(self, job: str) -> tuple[bool, int]:
        """Return the sort key of a job: small jobs first, then the one that has had least."""
        is_larger = job in self.larger.had
        return is_larger, (self.larger if is_larger else self.small).had[job]


@dataclass(slots=True, eq=False)
class OwnerLine:
    """One owner's items in the order they should run, and the waiting tokens of each job."""

    share: Share
    items: list[WaitingItem]
    by_job: dict[str, int]

    @property
    def tokens(self) -> int:
        """Return the number of all waiting tokens."""
        return sum(self.by_job.values())

    @property
    def rank(self) -> tuple[float, int, int]:
        """Return the owner's sort key: least service first, then least waiting work, then earliest arrival."""
        return self.share.ahead, self.tokens, self.items[0].arrival

    def is_small(self, job: str) -> bool:
        """Return whether few tokens of a job waited when the batch was begun."""
        return self.by_job[job] <= SMALL_TOKENS

    def keep_little(self, most_tokens: int) -> bool:
        """Leave out jobs with more than ``most_tokens`` waiting; return whether any job is left."""
        self.items = [item for item in self.items if self.by_job[item.job] <= most_tokens]
        return bool(self.items)

    def windows(self, buckets: Sequence[Bucket], length: int) -> Iterator[tuple[WaitingItem, Window]]:
        """Remove and yield the windows of these buckets, the first item's first, then a job's nearest to a length."""
        first = self.items[0]
        for _, items in groupby(self.items, key=attrgetter("priority", "job")):
            for item in sorted(items, key=lambda item: (item is not first, item.left, abs(item.next_length - length))):
                for bucket in buckets:
                    while bucket in item.by_bucket:
                        yield item, item.take(bucket)


def full(first: Bucket, waiting: Mapping[Bucket, int]) -> tuple[Sequence[Bucket], int]:  # noqa: ARG001
    """Choose a batch of one bucket with all its rows."""
    return (first,), first.rows


def next_batch(
    items: Iterable[WaitingItem],
    shares: dict[str, Share],
    choose: Choose = full,
    little_tokens: int = 0,
    most_tokens: float = math.inf,
) -> tuple[Bucket, list[tuple[WaitingItem, Window]]] | None:
    """Take a batch from the items: its bucket, and the windows that ``choose`` allows; None if nothing waits.

    ``shares`` is kept between calls, and empty at first. If a job with at most ``little_tokens`` waiting begins the
    batch, only jobs with as few tokens may join. If few rows take less time than many, such a job is answered at once,
    and not with the rest of a flood. A batch of several windows has at most ``most_tokens``.
    """
    if not (lines := _line_up(items, shares)):
        return None
    first = min(lines, key=lambda line: line.rank)
    oldest = min(item.arrival for item in first.items)
    first.share.passed_over = 0 if first.items[0].arrival == oldest else first.share.passed_over + 1
    bucket = next(iter(first.items[0].by_bucket))
    if first.by_job[first.items[0].job] <= little_tokens:
        lines = [line for line in lines if line.keep_little(little_tokens)]
    buckets, most = choose(bucket, _count(lines))
    rows = _alternate(first, lines, buckets, most, most_tokens)
    return smallest_fit(max(window.length for _, window in rows), buckets), rows


def _count(lines: Iterable[OwnerLine]) -> Mapping[Bucket, int]:
    """Count windows by bucket."""
    counts: Counter[Bucket] = Counter()
    for line in lines:
        for item in line.items:
            for bucket, windows in item.by_bucket.items():
                counts[bucket] += len(windows)
    return counts


def _line_up(items: Iterable[WaitingItem], shares: dict[str, Share]) -> list[OwnerLine]:
    """Return the owners that wait, with their shares levelled; forget owners without work that are not ahead."""
    by_owner: dict[str, list[WaitingItem]] = {}
    for item in items:
        if item.left:
            by_owner.setdefault(item.owner, []).append(item)
    waiting = {owner: shares.setdefault(owner, Share()) for owner in by_owner}
    least = min((share.ahead for share in waiting.values()), default=0)
    for owner in list(shares):
        shares[owner].ahead = max(-SAVED_TOKENS, shares[owner].ahead - least)
        if owner not in by_owner and (not by_owner or shares[owner].ahead == -SAVED_TOKENS):
            del shares[owner]
    return [_line_of(share, by_owner[owner]) for owner, share in waiting.items()]


def _line_of(share: Share, items: list[WaitingItem]) -> OwnerLine:
    """Order one owner's items."""
    by_job: dict[str, int] = {}
    for item in items:
        by_job[item.job] = by_job.get(item.job, 0) + item.tokens
    share.level(by_job)

    def turn(item: WaitingItem) -> tuple[float, ...]:
        job = item.job
        return item.priority, *share.turn(job), by_job[job], item.left, item.arrival

    items.sort(key=attrgetter("arrival") if share.passed_over >= OLDEST_TURN - 1 else turn)
    return OwnerLine(share, items, by_job)


def _alternate(
    first: OwnerLine, lines: list[OwnerLine], buckets: Sequence[Bucket], most: int, most_tokens: float
) -> list[tuple[WaitingItem, Window]]:
    """Take rows of these buckets: the first from ``first``, then each from the owner that has had the fewest tokens."""
    rows: list[tuple[WaitingItem, Window]] = []
    sources = {line: line.windows(buckets, first.items[0].next_length) for line in lines}
    line, tokens = first, 0
    while sources and len(rows) < most:
        row = next(sources[line], None)
        if row is None:
            del sources[line]
        elif rows and tokens + row[1].length > most_tokens:
            row[0].put_back(row[1], smallest_fit(row[1].length, buckets))
            del sources[line]
        else:
            rows.append(row)
            tokens += row[1].length
            line.share.charge(row[0], row[1].length, is_small=line.is_small(row[0].job))
        line = min(sources, key=lambda source: source.share.ahead, default=first)
    return rows
