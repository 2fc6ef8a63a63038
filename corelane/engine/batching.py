"""Choose the next batch among the windows of all items in progress, and how many rows are done in time. No queue.

Windows, not items, are scheduled. Owners share batches by tokens: the one that has had least begins the batch, and row
by row the one that has had least comes next, so that a question waits for no other owner's flood. A newcomer is level
with the owner that has had least: nobody saves up.

Within an owner the higher priority goes first. The jobs of one priority share by tokens in the same way: the job that
has had least goes first, among equals the one with the fewest tokens waiting, so that a question does not wait for its
owner's batch. A new job is level with the one that was served last (self-clocked fair queueing, Golestani, 1994). Were
it level with those that still wait, new short questions would pass over a longer one again and again. Within a job the
item with the fewest windows left goes first, so that a one-line question does not wait for a document. An owner that
has passed over its oldest item seven times begins with it, so that neither a document nor a low priority starves.

A batch holds windows of one bucket, the shortest that fits each: rows of a shorter one would cost more padding than the
batch they save (2.5 ms on a CPU, the time of 35 tokens).
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from corelane.domain.dispatch import PUBLIC
from corelane.domain.jobs import Priority
from corelane.engine.buckets import Bucket
from corelane.engine.windows import Window

#: An owner begins at least one of this many batches with its oldest item.
OLDEST_TURN = 8

#: Batches of a bucket that count towards its pace: enough that one of them is nearly always undisturbed, and few enough
#: to follow a core that gets hot. By the mean, neighbours that took a third of a CPU halved the batches (-10 %).
RECENT_BATCHES = 8

#: A job that is alone gets batches this many times as long; it is alone after this many seconds without another job.
ALONE, ALONE_AFTER_S = 1.5, 30.0

#: Questions without a larger job get batches this many times as long. Few wait: then none is as long. Many wait: then
#: they wait for each other for longer than that.
AMONG_QUESTIONS = 2.0

#: A larger job beside questions gets batches this many times as long: a question waits for the batch that runs.
BESIDE = 0.75


def smallest_fit(length: int, ladder: Sequence[Bucket]) -> Bucket:
    """Return the shortest bucket that holds ``length`` tokens; ValueError if none does. The ladder grows in length."""
    for bucket in ladder:
        if bucket.length >= length:
            return bucket
    raise ValueError(f"{length} tokens fit no bucket; the longest has {ladder[-1].length}")


@dataclass(slots=True)
class WaitingItem:
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
    ) -> "WaitingItem":
        """Sort an item's windows by the buckets they will run in; ValueError if one fits none."""
        waiting = cls(arrival, owner, priority, job=job)
        waiting.add(windows, ladder)
        return waiting

    def add(self, windows: Iterable[Window], ladder: Sequence[Bucket]) -> None:
        """Add windows behind those that wait; ValueError if one fits no bucket."""
        for window in windows:
            self.by_bucket.setdefault(smallest_fit(window.length, ladder), deque()).append(window)
            self.left += 1
            self.tokens += window.length

    def take(self, bucket: Bucket) -> Window:
        """Take out the first window of a bucket; KeyError if there is none."""
        windows = self.by_bucket[bucket]
        window = windows.popleft()
        if not windows:
            del self.by_bucket[bucket]
        self.left -= 1
        self.tokens -= window.length
        return window


@dataclass(slots=True)
class Share:
    """The service an owner has had: tokens beyond those of the waiting owner that has had least, the same by job, and
    how often in a row batches that it began passed over its oldest item. ``served`` is where the job that was served
    last stands, and new ones begin.
    """

    ahead: int = 0
    passed_over: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    served: int = 0

    def charge(self, job: str, tokens: int) -> None:
        """Count tokens that run for a job."""
        self.ahead += tokens
        self.jobs[job] = self.jobs.get(job, self.served) + tokens
        self.served = max(self.served, self.jobs[job])


@dataclass(slots=True, eq=False)
class OwnerLine:
    """One owner's items in the order they want to run, and the tokens that wait of each job."""

    share: Share
    items: list[WaitingItem]
    by_job: dict[str, int]

    @property
    def tokens(self) -> int:
        """Return all tokens that wait."""
        return sum(self.by_job.values())

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order owners: the one that has had least is first, then the one with least waiting, then by arrival."""
        return self.share.ahead, self.tokens, self.items[0].arrival

    def keep_little(self, most_tokens: int) -> bool:
        """Leave out jobs with more tokens waiting; return whether any job is left."""
        self.items = [item for item in self.items if self.by_job[item.job] <= most_tokens]
        return bool(self.items)

    def windows(self, bucket: Bucket, like: int | None = None) -> Iterator[tuple[WaitingItem, Window]]:
        """Take the windows of one bucket, one by one.

        With ``like`` the items of a job with windows of about so many tokens go first: a batch is as long as its
        longest row.
        """
        items: Iterable[WaitingItem] = self.items
        if like is not None:
            fitting = [item for item in self.items if bucket in item.by_bucket]
            items = (item for _, job in groupby(fitting, _job) for item in sorted(job, key=_distance(bucket, like)))
        for item in items:
            while bucket in item.by_bucket:
                yield item, item.take(bucket)


def full(bucket: Bucket) -> int:
    """Return all rows of a bucket."""
    return bucket.rows


def next_batch(
    items: Iterable[WaitingItem],
    shares: dict[str, Share],
    most_rows: Callable[[Bucket], int] = full,
    little_tokens: int = 0,
    *,
    alike: bool = False,
) -> tuple[Bucket, list[tuple[WaitingItem, Window]]] | None:
    """Take a batch from the items: a bucket and at most ``most_rows`` windows; None if nothing waits.

    ``shares`` is remembered between calls, empty at first. A job with at most ``little_tokens`` waiting shares a
    batch that it begins only with others like it: where few rows take less time than many, its question is answered at
    once, and not with the rest of a flood. With ``alike`` a job's rows are those most like the first in length.
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
    like = first.items[0].by_bucket[bucket][0].length if alike else None
    return bucket, _alternate(first, lines, bucket, most_rows(bucket), like)


def _line_up(items: Iterable[WaitingItem], shares: dict[str, Share]) -> list[OwnerLine]:
    """Return the owners that wait, their shares counted from the least; forget those that are gone and owe nothing."""
    by_owner: dict[str, list[WaitingItem]] = {}
    for item in items:
        if item.left:
            by_owner.setdefault(item.owner, []).append(item)
    least = min((shares[owner].ahead if owner in shares else 0 for owner in by_owner), default=0)
    for owner in list(shares):
        shares[owner].ahead = max(0, shares[owner].ahead - least)
        if owner not in by_owner and (not by_owner or not shares[owner].ahead):
            del shares[owner]
    return [_line_of(shares.setdefault(owner, Share()), waiting) for owner, waiting in by_owner.items()]


def _line_of(share: Share, items: list[WaitingItem]) -> OwnerLine:
    """Order one owner's items; its jobs count from the least of those that may go first, jobs that left are gone."""
    by_job: dict[str, int] = {}
    came: dict[str, int] = {}
    for item in items:
        by_job[item.job] = by_job.get(item.job, 0) + item.tokens
        came[item.job] = min(item.arrival, came.get(item.job, item.arrival))
    foremost = min(item.priority for item in items)
    least = min(share.jobs.get(item.job, share.served) for item in items if item.priority == foremost)
    share.jobs = {job: max(0, share.jobs.get(job, share.served) - least) for job in by_job}
    share.served = max(0, share.served - least)

    def turn(item: WaitingItem) -> tuple[int, ...]:
        return item.priority, share.jobs[item.job], by_job[item.job], came[item.job], item.left, item.arrival

    items.sort(key=_arrival if share.passed_over >= OLDEST_TURN - 1 else turn)
    return OwnerLine(share, items, by_job)


def _alternate(
    first: OwnerLine, lines: list[OwnerLine], bucket: Bucket, most: int, like: int | None
) -> list[tuple[WaitingItem, Window]]:
    """Take rows of one bucket, each from the owner that has had least, the very first from ``first``."""
    rows: list[tuple[WaitingItem, Window]] = []
    sources = {line: line.windows(bucket, like) for line in lines}
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


def _arrival(item: WaitingItem) -> int:
    return item.arrival


def _job(item: WaitingItem) -> str:
    return item.job


def _distance(bucket: Bucket, like: int) -> Callable[[WaitingItem], int]:
    """Return how far the length of an item's next window is from ``like``; equal ones keep their order."""
    return lambda item: abs(item.by_bucket[bucket][0].length - like)


class Pace:
    """Seconds a row takes by bucket, and so the rows that are done in time. A bucket never measured is not limited.

    Of the last few batches the fastest counts: one that was held up by other processes says nothing about the core. A
    core that slows down for good soon gets smaller batches, and larger ones again when it recovers.

    Short batches cost little: a core of an AMD EPYC with AVX-512 runs the built-in model in bf16, with 1, 2, 4, 8 rows,
    at 158, 209, 240, 250 rows/s of 64 tokens, at 92, 108, 113, 116 of 128, at 45, 47, 48, 47 of 256, at 27, 28, 28, 27
    of 384. SQuAD ran in batches of 60 ms at the speed of full ones, of 40 ms at 96 % of it, of 30 ms at 89 %. So a job
    that is alone gets batches half as long again, but for rows that take long by themselves: those gain
    nothing by company, and are mostly a document's, beside which others may have questions. While questions come, a
    larger job gets shorter ones. Questions among themselves get long ones, those of long rows too: sixteen callers were
    answered 3.7 % faster (simulated, two cores), 64 callers 6 %.
    """

    def __init__(self, target_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``target_s`` is the longest time one batch should take while several jobs ask."""
        self._target_s = target_s
        self._clock = clock
        self._last_asker: str | None = None
        #: When another larger job came, any larger job, a question.
        self._turned_at = self._larger_at = self._little_at = -math.inf
        self._row_s: dict[Bucket, deque[float]] = {}

    def note(self, bucket: Bucket, rows: int, seconds: float) -> None:
        """Note the time that a batch took."""
        self._row_s.setdefault(bucket, deque(maxlen=RECENT_BATCHES)).append(seconds / rows)

    def heard(self, asker: str, *, is_little: bool = False) -> None:
        """Note that an item came; ``asker`` names its owner and job. ``is_little`` says that the job is a question."""
        now = self._clock()
        if is_little:
            self._little_at = now
            return
        if self._last_asker not in (asker, None):
            self._turned_at = now
        self._last_asker, self._larger_at = asker, now

    def rows(self, bucket: Bucket) -> int:
        """Return the rows that are done in time; one at least, and never more than the bucket's."""
        row_s = min(self._row_s.get(bucket, ()), default=0.0)
        if row_s <= 0:
            return bucket.rows
        in_time, stretch = self._target_s / row_s, self._stretch()
        if in_time >= 2 or stretch == AMONG_QUESTIONS:
            in_time *= stretch
        return max(1, int(min(bucket.rows, in_time)))

    def _stretch(self) -> float:
        """Return how many times as long as the target batches may take, by who asks lately."""
        since = self._clock() - ALONE_AFTER_S
        if self._little_at > since:
            return BESIDE if self._larger_at > since else AMONG_QUESTIONS
        return ALONE if self._turned_at < since else 1.0
