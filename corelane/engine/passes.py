"""Measured times of passes on this machine, which decide which waiting windows share one, and how many rows.

A pass takes a fixed time, some for each token, and in its attentions some for each pair of places of a row. How these
compare depends on the machine: the fixed time is that of 75 tokens on a CPU with AMX, of 20 on one without. So the
passes that warm a model up are measured, and then all that run, by CPU time: neighbours on the machine change that
least. What a core computes from one pass to the next is part of the fixed time. A shape that takes much longer than
others let expect is slow by itself, as 3 × 384 is on one CPU with AMX: then other numbers of rows run.

Windows of several buckets share a pass if the pass that this saves would take longer than the padding does. Where
linear layers leave padding out (``Manifest.ragged_rows``) only attentions have any.

Where rows are fixed, a pass takes what its shape takes, however few of its rows are used. If a length has several
shapes, each is measured by the clock, as a device computes by itself, and windows run in the quickest that holds them.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from corelane.engine.buckets import Bucket, tallest

#: Batches of a bucket that count towards its pace, and of a shape towards its time: enough that one of them is nearly
#: always undisturbed, and few enough to follow a core that gets hot. By the mean, neighbours that took a third of a CPU
#: halved the batches (-10 %).
RECENT_BATCHES = 8

#: Times are fitted again after this many passes; a pass counts for this many. A slow shape is tried again after that.
FIT_AFTER, FORGET_AFTER = 32, 512

#: Microseconds in a second.
US = 1_000_000

#: No pass takes less, in seconds: the clock may stand still.
MOMENT_S = 1e-6

#: A shape is slow by itself if each of at least this many passes took this many times what the others say.
SLOW_PASSES, SLOW = 3, 1.2

#: A job that is alone gets batches this many times as long; it is alone after this many seconds without another job.
ALONE, ALONE_AFTER_S = 1.5, 30.0

#: Questions without a larger job get batches this many times as long. Few wait: then none is as long. Many wait: then
#: they wait for each other for longer than that.
AMONG_QUESTIONS = 2.0


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One pass through the model: its bucket, the windows in it, their tokens, and the padding beside them."""

    bucket: Bucket
    windows: int
    tokens: int
    padding: int


@dataclass(frozen=True, slots=True)
class PassTable:
    """Seconds of a full pass by bucket, and its number of rows (from 1); ``token_s`` of it are saved for each token
    that is padding. ``shapes`` are those that this many rows run in, where they are fixed.
    """

    seconds: Mapping[Bucket, Sequence[float]]
    token_s: float = 0.0
    shapes: Mapping[Bucket, Sequence[Bucket]] | None = None

    @classmethod
    def of_shapes(cls, seconds: Mapping[Bucket, float], beside_s: float = 0.0) -> Self:
        """Return the table of fixed shapes: rows run in the quickest that holds them. ``beside_s`` is added to each."""

        def quickest(length: int, rows: int) -> Bucket:
            return min(
                (each for each in seconds if each.length >= length and each.rows >= rows), key=seconds.__getitem__
            )

        shapes = {
            bucket: [quickest(bucket.length, rows) for rows in range(1, bucket.rows + 1)] for bucket in tallest(seconds)
        }
        table = {bucket: [seconds[each] + beside_s for each in line] for bucket, line in shapes.items()}
        return cls(table, shapes=shapes)

    def shape(self, bucket: Bucket, rows: int) -> Bucket:
        """Return the shape that this many windows of a bucket run in."""
        return bucket if self.shapes is None else self.shapes[bucket][rows - 1]

    def rows_within(self, bucket: Bucket, seconds: float) -> int:
        """Return the most rows of a bucket that take no longer than this; 0 if one takes longer."""
        return max((rows for rows, took in enumerate(self.seconds[bucket], 1) if took <= seconds), default=0)

    def mixed(self, waiting: Sequence[tuple[Bucket, int]]) -> float:
        """Return the seconds of one pass of windows of several buckets, the longest last."""
        longest = waiting[-1][0]
        rows = sum(count for _, count in waiting)
        padding = sum(count * (longest.length - bucket.length) for bucket, count in waiting)
        return self.seconds[longest][rows - 1] - padding * self.token_s

    def apart(self, bucket: Bucket, count: int, most: int) -> tuple[float, int]:
        """Return the seconds of windows of one bucket in passes of their own, and the rows of the first of those."""
        seconds = self.seconds[bucket][:most]
        quickest = min(range(1, len(seconds) + 1), key=lambda rows: (seconds[rows - 1] / rows, -rows))
        passes = max(0, -(-(count - len(seconds)) // quickest))
        #: The same for fewer windows, none at first.
        least = [(0.0, 0)]
        for left in range(1, count - passes * quickest + 1):
            took = [(seconds[rows - 1] + least[left - rows][0], rows) for rows in range(min(left, len(seconds)), 0, -1)]
            least.append(min(took, key=_first))
        return passes * seconds[quickest - 1] + least[-1][0], quickest if passes else least[-1][1]

    def row_us(self, *, flexible_rows: bool) -> list[tuple[int, int, int]]:
        """Return what rows take by length, as ``Manifest.row_us`` does."""
        return [
            (
                bucket.length,
                round(US * seconds[0 if flexible_rows else -1]),
                round(US * min(took / rows for rows, took in enumerate(seconds, 1))),
            )
            for bucket, seconds in self.seconds.items()
        ]


def _first(pair: tuple[float, int]) -> float:
    return pair[0]


def choose(
    first: Bucket, waiting: Mapping[Bucket, int], table: PassTable, most_rows: Callable[[Bucket], int]
) -> tuple[Sequence[Bucket], int]:
    """Return the buckets and the rows of the next pass, which has a window of ``first``.

    ``waiting`` are the windows that may be in it, by bucket. They are divided by length into the passes that take the
    least time together; a pass of several buckets has all their windows.
    """
    if len(waiting) == 1 or waiting[first] >= most_rows(first):
        return (first,), table.apart(first, waiting[first], most_rows(first))[1]
    line = sorted(waiting.items())
    #: The least time of the shortest windows, up to each bucket; where their last pass begins, and its rows.
    least_s, begins = [0.0], [(0, 0)]
    for end, (bucket, rows) in enumerate(line, 1):
        most = most_rows(bucket)
        apart_s, alone = table.apart(bucket, rows, most)
        best = least_s[-1] + apart_s, end - 1, alone
        for start in range(end - 2, -1, -1):
            rows += line[start][1]
            if rows > most:
                break
            together_s = least_s[start] + table.mixed(line[start:end])
            if together_s < best[0]:
                best = together_s, start, rows
        least_s.append(best[0])
        begins.append(best[1:])
    end = len(line)
    while line[begins[end][0]][0] > first:
        end = begins[end][0]
    start, rows = begins[end]
    return [bucket for bucket, _ in line[start:end]], rows


@dataclass(frozen=True, slots=True)
class Measured:
    """One pass: its number, what it took, and what it computed: itself, tokens, places of attention."""

    number: int
    seconds: float
    work: tuple[float, float, float]


class PassTimes:
    """The times of passes, and the table that follows from them.

    Where rows are flexible they are CPU times; where shapes are fixed, times by the clock, as a device computes by
    itself. What is computed beside passes is CPU time in any case, of one thread where others poll a device.
    """

    def __init__(
        self,
        ladder: Sequence[Bucket],
        *,
        flexible_rows: bool,
        ragged: bool = False,
        clock: Callable[[], float] | None = None,
        beside_clock: Callable[[], float] | None = None,
    ) -> None:
        """``ragged`` says that only attentions have padding."""
        self._ladder = ladder
        self._flexible_rows, self._ragged = flexible_rows, ragged
        self._clock = clock or (time.process_time if flexible_rows else time.perf_counter)
        self._beside_clock = beside_clock or (time.process_time if flexible_rows else time.thread_time)
        self._measured: dict[tuple[Bucket, int], deque[Measured]] = {}
        self._beside: deque[float] = deque([0.0], maxlen=FIT_AFTER)
        self._began = 0.0
        self._ended: float | None = None
        self._count = 0
        self._fitted_at = -math.inf
        self._table: PassTable | None = None

    def begin(self) -> None:
        """Begin a pass. What was computed since the last one is beside both."""
        if self._ended is not None:
            self._beside.append(max(0.0, self._beside_clock() - self._ended))
        self._began = self._clock()

    def end(self, bucket: Bucket, shape: tuple[int, ...], tokens: int) -> None:
        """Note the end of a pass: its bucket, its shape, rows × length, and its tokens without padding."""
        took = max(self._clock() - self._began, MOMENT_S)
        self._ended = self._beside_clock()
        rows, length = shape
        self._count += 1
        work = 1.0, float(tokens if self._ragged else rows * length), float(rows * length * length)
        line = self._measured.setdefault((bucket, rows), deque(maxlen=RECENT_BATCHES))
        line.append(Measured(self._count, took, work))

    def table(self) -> PassTable:
        """Return the table, worked out again now and then by what ran recently."""
        if self._table is None or self._count - self._fitted_at >= FIT_AFTER:
            oldest = self._count - FORGET_AFTER
            recent = {shape: [each for each in line if each.number > oldest] for shape, line in self._measured.items()}
            self._measured = {shape: deque(line, RECENT_BATCHES) for shape, line in recent.items() if line}
            work_out = self._of_flexible_rows if self._flexible_rows else self._of_shapes
            self._table = work_out(statistics.median(self._beside))
            self._fitted_at = self._count or -math.inf
        return self._table

    def _of_flexible_rows(self, beside_s: float) -> PassTable:
        """Return the table by costs that fit all passes; until one was measured each window counts the same."""
        if not self._measured:
            return PassTable({each: [MOMENT_S * (rows + 1) for rows in range(each.rows)] for each in self._ladder})
        costs = fit([_median(line) for line in self._measured.values()])

        def seconds(bucket: Bucket, rows: int) -> float:
            took = _seconds(costs, (1, rows * bucket.length, rows * bucket.length**2))
            return took * _slowness(self._measured.get((bucket, rows), ()), costs) + beside_s

        by_bucket = {each: [seconds(each, rows + 1) for rows in range(each.rows)] for each in self._ladder}
        return PassTable(by_bucket, costs[1] if self._ragged else 0.0)

    def _of_shapes(self, beside_s: float) -> PassTable:
        """Return the table by the time of each shape; one that has not run recently takes what its size says."""
        known = {
            bucket: statistics.median(each.seconds for each in line) for (bucket, _), line in self._measured.items()
        }
        place_s = statistics.median([took / each.places for each, took in known.items()] or [MOMENT_S])
        seconds = {bucket: known.get(bucket, bucket.places * place_s) for bucket in self._ladder}
        return PassTable.of_shapes(seconds, beside_s)


def fit(passes: Sequence[Measured]) -> tuple[float, ...]:
    """Return the seconds of a pass by itself, of a token, and of a place; passes that took much longer do not count."""
    costs = _least_squares(passes)
    return _least_squares([each for each in passes if each.seconds <= SLOW * _seconds(costs, each.work)])


def _least_squares(passes: Sequence[Measured]) -> tuple[float, ...]:
    """Return the costs with the least squares of relative errors, none below zero."""
    work = np.array([each.work for each in passes])
    scale = work.max(axis=0)
    relative = work / scale / np.array([[each.seconds] for each in passes])
    costs, used = np.zeros(3), np.array([True, True, True])
    while used.any():
        costs[:] = 0
        costs[used] = np.linalg.lstsq(relative[:, used], np.ones(len(passes)), rcond=None)[0]
        if (costs >= 0).all():
            break
        used &= costs > 0
    return tuple((costs / scale).tolist())


def _seconds(costs: Sequence[float], work: Sequence[float]) -> float:
    return sum(cost * amount for cost, amount in zip(costs, work, strict=True))


def _median(passes: Sequence[Measured]) -> Measured:
    return sorted(passes, key=lambda each: each.seconds / each.work[1])[len(passes) // 2]


def _slowness(passes: Sequence[Measured], costs: Sequence[float]) -> float:
    """Return how many times as long as expected even the quickest of these took; 1 unless that is much."""
    if len(passes) < SLOW_PASSES:
        return 1.0
    slowness = min(each.seconds / _seconds(costs, each.work) for each in passes)
    return slowness if slowness > SLOW else 1.0


class Pace:
    """How long a batch may take, and so its rows, by who asked recently.

    A job that is alone gets batches half as long again, but for rows that take long by themselves: those gain nothing
    by company, and are mostly a document's. While questions come it gets no longer ones, as a question waits for the
    batch that runs. Questions among themselves get long ones. Batches of 40 ms run at 96 % of the speed of full ones,
    of 60 ms at all of it.
    """

    def __init__(self, target_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``target_s`` is the longest time one batch should take while several jobs ask."""
        self._target_s = target_s
        self._clock = clock
        self._last_asker: str | None = None
        #: When another larger job came, any larger job, a question.
        self._turned_at = self._larger_at = self._little_at = -math.inf

    def heard(self, asker: str, *, is_little: bool = False) -> None:
        """Note that an item came; ``asker`` names its owner and job. ``is_little`` says that the job is a question."""
        now = self._clock()
        if is_little:
            self._little_at = now
            return
        if self._last_asker not in (asker, None):
            self._turned_at = now
        self._last_asker, self._larger_at = asker, now

    def rows(self, bucket: Bucket, table: PassTable) -> int:
        """Return the rows that are done in time; one at least."""
        rows, stretch = table.rows_within(bucket, self._target_s), self._stretch()
        if rows >= 2 or stretch == AMONG_QUESTIONS:
            rows = table.rows_within(bucket, stretch * self._target_s)
        return max(1, rows)

    def _stretch(self) -> float:
        """Return how many times as long as the target batches may take, by who asks recently."""
        since = self._clock() - ALONE_AFTER_S
        if self._little_at > since:
            return 1.0 if self._larger_at > since else AMONG_QUESTIONS
        return ALONE if self._turned_at < since else 1.0
