"""Measured times of passes on this machine. They decide which waiting windows share a pass, and its number of rows.

A pass takes a fixed time, some time for each token, and in its attentions some for each pair of places in a row. The
proportions depend on the machine: the fixed time equals 75 tokens on a CPU with AMX, 20 on one without. So the passes
that warm a model up are measured, and later all passes, by CPU time: neighbours on the machine disturb that least. What
a core computes between passes is added to the fixed time. If a shape takes much longer than other shapes predict, as
3 × 384 does on one CPU with AMX, it is slow by itself. Then other numbers of rows are run.

Windows of several buckets share a pass if the added padding takes less time than the saved pass. If linear layers leave
out padding (``Manifest.ragged_rows``), only attentions spend time on it.

If rows are fixed, a pass takes the time of its shape, even if few of its rows are used. If a length has several shapes,
each is measured by the clock, as a device computes by itself. Windows run in the fastest shape that holds them.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from corelane.engine.buckets import Bucket, tallest

#: How many recent batches count for a bucket's pace and a shape's time: enough that one of them is nearly always
#: undisturbed, and few enough to follow a core that gets hot. When the mean was used, neighbours that took a third of a
#: CPU halved the batches (-10 %).
RECENT_BATCHES = 8

#: Times are fitted again after ``FIT_AFTER`` passes; a pass counts for ``FORGET_AFTER`` passes. After that a slow shape
#: is tried again.
FIT_AFTER, FORGET_AFTER = 32, 512

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
WARM_UP_PASSES = 3

#: The shortest time of a pass, in seconds: the clock may stand still.
MOMENT_S = 1e-6

#: A shape is slow by itself if at least ``SLOW_PASSES`` passes each took ``SLOW`` times what the others predict.
SLOW_PASSES, SLOW = 3, 1.2

#: Longer rows are not run to warm up where kernels are shared: their first pass takes hardly longer than the second.
#: Those of 448 and 512 tokens alone would make a start of MPNet 8.0 s → 9.6; a pass of 8,192 takes a core 40 s.
WARMED_LENGTH = 384


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One pass through the model: its bucket, its windows, their tokens, and its padding."""

    bucket: Bucket
    windows: int
    tokens: int
    padding: int


@dataclass(frozen=True, slots=True)
class PassTable:
    """Seconds of a full pass, by bucket and number of rows (from 1).

    ``token_s`` is the time that a token saves if it is padding. If rows are fixed, ``shapes`` has the shape in which
    each number of rows runs.
    """

    seconds: Mapping[Bucket, Sequence[float]]
    token_s: float = 0.0
    shapes: Mapping[Bucket, Sequence[Bucket]] | None = None

    def shape(self, bucket: Bucket, rows: int) -> Bucket:
        """Return the shape in which this many windows of a bucket run."""
        return bucket if self.shapes is None else self.shapes[bucket][rows - 1]

    def rows_within(self, bucket: Bucket, seconds: float) -> int:
        """Return the most rows of a bucket that take at most this long; 1 if even one takes longer."""
        return max((rows for rows, took in enumerate(self.seconds[bucket], 1) if took <= seconds), default=1)

    def mixed(self, waiting: Sequence[tuple[Bucket, int]]) -> float:
        """Return the seconds of one pass with windows of several buckets; the longest bucket is last."""
        longest = waiting[-1][0]
        rows = sum(count for _, count in waiting)
        padding = sum(count * (longest.length - bucket.length) for bucket, count in waiting)
        return self.seconds[longest][rows - 1] - padding * self.token_s

    def apart(self, bucket: Bucket, count: int, most: int) -> tuple[float, int]:
        """Return the seconds of windows of one bucket in passes of their own, and the rows of the first pass."""
        seconds = self.seconds[bucket][:most]
        quickest = min(range(1, len(seconds) + 1), key=lambda rows: (seconds[rows - 1] / rows, -rows))
        passes = max(0, -(-(count - len(seconds)) // quickest))
        #: For 0, 1, 2, … windows: their least seconds, and the rows of their first pass.
        least = [(0.0, 0)]
        for left in range(1, count - passes * quickest + 1):
            took = [(seconds[rows - 1] + least[left - rows][0], rows) for rows in range(min(left, len(seconds)), 0, -1)]
            least.append(min(took, key=itemgetter(0)))
        return passes * seconds[quickest - 1] + least[-1][0], quickest if passes else least[-1][1]


def warm_ups(ladder: Sequence[Bucket], *, flexible_rows: bool, rows_share_kernels: bool) -> list[tuple[Bucket, int]]:
    """Return the batches that warm a model up, each run ``WARM_UP_PASSES`` times: a bucket, and its number of rows.

    Batches of fixed rows are full. If rows are flexible, full batches and single rows are run; only single rows if
    further rows then cost little (``rows_share_kernels``). They do on a CPU: compiled functions in a graph (bf16's
    attention) are profiled again at every length, which takes 20 to 40 ms each time for the built-in model, and more
    rows of a warm length take only 2 to 5 ms more in their first pass. Warming fewer rows does not change logits.
    """
    alone, full = flexible_rows, not (flexible_rows and rows_share_kernels)
    warmed = ladder if full else [bucket for bucket in ladder if bucket.length <= WARMED_LENGTH] or ladder[:1]
    return [(bucket, rows) for bucket in warmed for rows, runs in ((1, alone), (bucket.rows, full)) if runs]


def choose(
    first: Bucket, waiting: Mapping[Bucket, int], table: PassTable, most_rows: Callable[[Bucket], int]
) -> tuple[Sequence[Bucket], int]:
    """Return the buckets and the rows of the next pass, which has a window of ``first``.

    ``waiting`` is the number of windows by bucket that may join. Windows are divided by length into the passes that
    take the least time together. A pass of several buckets has all their windows.
    """
    if len(waiting) == 1 or waiting[first] >= most_rows(first):
        return (first,), table.apart(first, waiting[first], most_rows(first))[1]
    line = sorted(waiting.items())
    #: For the first 0, 1, 2, … buckets: the least seconds of their windows; where the last pass begins, and its rows.
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
    """One pass: its number, its time, and its work: 1 for its fixed part, its tokens, and its pairs of places."""

    number: int
    seconds: float
    work: tuple[float, float, float]


class PassTimes:
    """The times of passes, and the table computed from them.

    If rows are flexible, the times are CPU times. If shapes are fixed, they are times by the clock, as a device
    computes by itself. Work between passes always counts by CPU time, that of one thread if others poll a device.
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
        """``ragged`` says that linear layers leave padding out, and only attentions spend time on it."""
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
        """Begin a pass. The time since the last pass counts as work between passes."""
        if self._ended is not None:
            self._beside.append(max(0.0, self._beside_clock() - self._ended))
        self._began = self._clock()

    def end(self, bucket: Bucket, shape: tuple[int, ...], tokens: int) -> None:
        """End a pass: note its bucket, its shape (rows × length), and its tokens without padding."""
        took = max(self._clock() - self._began, MOMENT_S)
        self._ended = self._beside_clock()
        rows, length = shape
        self._count += 1
        work = 1.0, float(tokens if self._ragged else rows * length), float(rows * length * length)
        line = self._measured.setdefault((bucket, rows), deque(maxlen=RECENT_BATCHES))
        line.append(Measured(self._count, took, work))

    def table(self) -> PassTable:
        """Return the table. It is computed again from recent passes every ``FIT_AFTER`` passes."""
        if self._table is None or self._count - self._fitted_at >= FIT_AFTER:
            oldest = self._count - FORGET_AFTER
            recent = {shape: [each for each in line if each.number > oldest] for shape, line in self._measured.items()}
            self._measured = {shape: deque(line, RECENT_BATCHES) for shape, line in recent.items() if line}
            work_out = self._of_flexible_rows if self._flexible_rows else self._of_shapes
            self._table = work_out(statistics.median(self._beside))
            self._fitted_at = self._count or -math.inf
        return self._table

    def _of_flexible_rows(self, beside_s: float) -> PassTable:
        """Return the table, from costs fitted to all passes. Before the first pass, all windows cost the same."""
        if not self._measured:
            return PassTable({each: [MOMENT_S * (rows + 1) for rows in range(each.rows)] for each in self._ladder})
        lines = [sorted(line, key=lambda each: each.seconds / each.work[1]) for line in self._measured.values()]
        costs = fit([line[len(line) // 2] for line in lines])

        def seconds(bucket: Bucket, rows: int) -> float:
            took = _seconds(costs, (1, rows * bucket.length, rows * bucket.length**2))
            return took * _slowness(self._measured.get((bucket, rows), ()), costs) + beside_s

        by_bucket = {each: [seconds(each, rows + 1) for rows in range(each.rows)] for each in self._ladder}
        return PassTable(by_bucket, costs[1] if self._ragged else 0.0)

    def _of_shapes(self, beside_s: float) -> PassTable:
        """Return the table of fixed shapes: rows run in the fastest shape that holds them.

        The time of a shape without recent passes is estimated from its size.
        """
        known = {
            bucket: statistics.median(each.seconds for each in line) for (bucket, _), line in self._measured.items()
        }
        place_s = statistics.median([took / each.places for each, took in known.items()] or [MOMENT_S])
        seconds = {bucket: known.get(bucket, bucket.places * place_s) for bucket in self._ladder}

        def quickest(length: int, rows: int) -> Bucket:
            return min(
                (each for each in seconds if each.length >= length and each.rows >= rows), key=seconds.__getitem__
            )

        shapes = {
            bucket: [quickest(bucket.length, rows) for rows in range(1, bucket.rows + 1)] for bucket in tallest(seconds)
        }
        table = {bucket: [seconds[each] + beside_s for each in line] for bucket, line in shapes.items()}
        return PassTable(table, shapes=shapes)


def fit(passes: Sequence[Measured]) -> tuple[float, ...]:
    """Return the seconds of a pass itself, of a token, and of a pair of places. Ignore passes that took much longer."""
    costs = _least_squares(passes)
    return _least_squares([each for each in passes if each.seconds <= SLOW * _seconds(costs, each.work)])


def _least_squares(passes: Sequence[Measured]) -> tuple[float, ...]:
    """Return the costs with the least squares of relative errors; none is negative."""
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


def _slowness(passes: Sequence[Measured], costs: Sequence[float]) -> float:
    """Return by which factor even the fastest of these passes was slower than expected; 1 if by at most ``SLOW``."""
    if len(passes) < SLOW_PASSES:
        return 1.0
    slowness = min(each.seconds / _seconds(costs, each.work) for each in passes)
    return slowness if slowness > SLOW else 1.0
