"""The recorder: adds up what one process measures, and returns what was added since the last time.

Adding is safe from any thread: it appends to a queue, which is summed up when it is read or has grown long. What was
read is kept until the store has it, under a number by which the store recognises a repetition.
"""

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from corelane.metrics.definitions import Metric, MetricKind

#: Separators in a field's name: between metric, labels and bucket, and at the beginning of a bucket.
SEPARATOR, BUCKET = "|", "#"

#: Further fields of a histogram: the bucket without a bound, and the sum.
ABOVE, SUM = f"{BUCKET}inf", f"{BUCKET}sum"

#: The label for everything beyond MOST_SERIES combinations of labels of one metric, in this process.
OTHER = "other"
MOST_SERIES = 400

#: Most entries that wait to be summed up.
MOST_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Delta:
    """What was added, by field of the store's hash, and the number of this flush."""

    number: int
    amounts: Mapping[str, float]


class Recorder:
    """The measurements of one process."""

    def __init__(self) -> None:
        self._added: deque[tuple[Metric, float, tuple[str, ...]]] = deque()
        self._lock = threading.Lock()
        self._sums: dict[str, float] = {}
        self._fields: dict[tuple[Metric, tuple[str, ...]], Sequence[str]] = {}
        self._series: dict[Metric, int] = {}
        self._number = 0
        self._unsent: Delta | None = None

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Add to a counter, or a value to a histogram. Labels are in the order of the metric's definition."""
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, not {labels}")
        self._added.append((metric, amount, labels))
        if len(self._added) > MOST_ENTRIES:
            with self._lock:
                self._drain()

    @contextmanager
    def timed(self, metric: Metric, *labels: str) -> Iterator[None]:
        """Add the seconds that a block takes to a histogram, even if it fails."""
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            self.add(metric, time.perf_counter() - begun_s, *labels)

    def take(self) -> Delta | None:
        """Return what was added since the last flush that ``sent`` confirmed; None if nothing was.

        While a delta is not confirmed, the same delta is returned again.
        """
        with self._lock:
            if self._unsent is None:
                self._drain()
                if self._sums:
                    self._number += 1
                    self._unsent, self._sums = Delta(self._number, self._sums), {}
            return self._unsent

    def sent(self, delta: Delta) -> None:
        """Note that the store has a delta."""
        with self._lock:
            if self._unsent is delta:
                self._unsent = None

    def _drain(self) -> None:
        """Sum up the queue. Other threads may add meanwhile; that stays in the queue for the next time."""
        sums, series = self._sums, self._fields
        for _ in range(len(self._added)):
            metric, amount, labels = self._added.popleft()
            fields = series.get((metric, labels)) or self._name(metric, labels)
            if metric.kind is MetricKind.HISTOGRAM:
                sums[fields[-1]] = sums.get(fields[-1], 0.0) + amount
                field, amount = fields[bisect_left(metric.buckets, amount)], 1
            else:
                field = fields[0]
            sums[field] = sums.get(field, 0) + amount

    def _name(self, metric: Metric, labels: tuple[str, ...]) -> Sequence[str]:
        """Return the fields of a metric with these labels. If it has too many series, all others share one."""
        count = self._series.get(metric, 0)
        if count >= MOST_SERIES:
            return fields_of(metric, (OTHER,) * len(labels))
        self._series[metric] = count + 1
        fields = self._fields[metric, labels] = fields_of(metric, labels)
        return fields


def fields_of(metric: Metric, labels: tuple[str, ...]) -> Sequence[str]:
    """Return the fields of the store's hash for these labels; for a histogram its buckets in order, then its sum."""
    name = SEPARATOR.join((metric.name, *(str(label).replace(SEPARATOR, "_") for label in labels)))
    if metric.kind is not MetricKind.HISTOGRAM:
        return (name,)
    parts = (*map(bucket_name, metric.buckets), ABOVE, SUM)
    return [f"{name}{SEPARATOR}{part}" for part in parts]


def bucket_name(bound: float) -> str:
    """Return the name of a bucket with this upper bound."""
    return f"{BUCKET}{bound:g}"
