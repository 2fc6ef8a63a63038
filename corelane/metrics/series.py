"""Series: the fields of the store's hash, parsed to counters and histograms."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from corelane.metrics.definitions import ALL, Metric, MetricKind
from corelane.metrics.recorder import ABOVE, BUCKET, SEPARATOR, SUM

#: The sum of a histogram whose values were counted in milliseconds.
SUM_MS = f"{BUCKET}ms"

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram: the number of values in each bucket, the last one without a bound; and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float = 0.0

    @property
    def count(self) -> float:
        """Return how many values there are."""
        return sum(self.counts)

    def since(self, before: "Histogram | None") -> "Histogram":
        """Return what was added since ``before``; everything if the sums started again from 0 in between."""
        if before is None or before.bounds != self.bounds or before.count > self.count:
            return self
        counts = tuple(max(0.0, now - then) for now, then in zip(self.counts, before.counts, strict=True))
        return Histogram(self.bounds, counts, max(0.0, self.sum - before.sum))

    def plus(self, other: "Histogram") -> "Histogram":
        """Return the sum of both histograms."""
        counts = tuple(one + another for one, another in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum + other.sum)

    def quantile(self, share: float) -> float | None:
        """Estimate the value below which a share of the values lies, evenly spread in its bucket; None without values.

        If it is in the bucket without a bound, return that bucket's lower bound.
        """
        left = share * self.count
        if not self.count:
            return None
        lower = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and left <= count:
                return lower + (bound - lower) * left / count
            left, lower = left - count, bound
        return lower


@dataclass(frozen=True, slots=True)
class Series:
    """All sums at one time, by metric and labels."""

    counters: Mapping[Metric, Mapping[Labels, float]]
    histograms: Mapping[Metric, Mapping[Labels, Histogram]]

    def total(self, metric: Metric, *labels: str | None) -> float:
        """Return the sum of a counter over all series whose labels match; None matches any."""
        return sum(
            amount
            for found, amount in self.counters.get(metric, {}).items()
            if all(wanted in (None, value) for wanted, value in zip(labels, found, strict=False))
        )

    def histogram(self, metric: Metric) -> Histogram:
        """Return a histogram over all of its labels."""
        found = Histogram(metric.buckets, (0.0,) * (len(metric.buckets) + 1))
        for each in self.histograms.get(metric, {}).values():
            found = found.plus(each)
        return found


def parse(sums: Mapping[str, float]) -> Series:
    """Parse the fields of the store's hash; fields of metrics that this release lacks are left out."""
    counters: dict[Metric, dict[Labels, float]] = {}
    parts: dict[Metric, dict[Labels, dict[str, float]]] = {}
    for field, amount in sums.items():
        name, *labels = field.split(SEPARATOR)
        metric = ALL.get(name)
        if metric is None:
            continue
        if metric.kind is not MetricKind.HISTOGRAM:
            if len(labels) == len(metric.labels):
                counters.setdefault(metric, {})[tuple(labels)] = amount
        elif len(labels) == len(metric.labels) + 1:
            parts.setdefault(metric, {}).setdefault(tuple(labels[:-1]), {})[labels[-1]] = amount
    histograms = {
        metric: {labels: _histogram(metric, found) for labels, found in by_labels.items()}
        for metric, by_labels in parts.items()
    }
    return Series(counters, histograms)


def _histogram(metric: Metric, found: Mapping[str, float]) -> Histogram:
    """Put a histogram together; a bucket of another release is added to this release's next wider one."""
    counts = dict.fromkeys((*metric.buckets, float("inf")), 0.0)
    for bound, count in _buckets(found):
        counts[next(each for each in counts if each >= bound)] += count
    return Histogram(metric.buckets, tuple(counts.values()), found.get(SUM, 0.0) + found.get(SUM_MS, 0.0) / 1000)


def _buckets(found: Mapping[str, float]) -> Iterator[tuple[float, float]]:
    for part, count in found.items():
        if part == ABOVE:
            yield float("inf"), count
        elif part not in (SUM, SUM_MS):
            yield float(part.removeprefix(BUCKET)), count
