"""Points of the service's history: made from the sums and gauges at two times, and merged into coarser points. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from corelane.metrics import definitions as m
from corelane.metrics.series import Histogram, Series

#: The time between two points, in milliseconds. The first point that is read stands for as long.
POINT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """The service's figures for the time until ``at_ms``. Rates are per second; None where nothing was measured.

    ``jobs_s`` counts jobs that ended, ``failed_s`` items that failed. ``busy`` is the mean of all living cores.
    ``backlog_s`` is the time that the cores need for all open work.
    """

    at_ms: int
    items_s: float = 0.0
    tokens_s: float = 0.0
    jobs_s: float = 0.0
    failed_s: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    wait_p95_s: float | None = None
    backlog_s: float | None = None
    waiting_tokens: int = 0
    open_items: int = 0
    padding_ratio: float | None = None
    busy: float | None = None

    @classmethod
    def decode(cls, stored: Sequence[Any]) -> "Point":
        """Read a stored point. A point of another release may have more values, or fewer."""
        return cls(*stored[: len(fields(cls))])

    def encode(self) -> list[Any]:
        """Return the values to store, rounded to what charts need."""
        return [round(value, 4) if isinstance(value, float) else value for value in asdict(self).values()]


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of the sums between two readings."""

    seconds: float
    before: Series
    now: Series

    def grown(self, metric: m.Metric, *labels: str | None) -> float:
        """Return how much a counter grew; its whole value if it restarted at 0."""
        then, now = self.before.total(metric, *labels), self.now.total(metric, *labels)
        return now - then if now >= then else now

    def histogram(self, metric: m.Metric, *labels: str) -> Histogram:
        """Return the histogram of the values that were added."""
        if not labels:
            return self.now.histogram(metric).since(self.before.histogram(metric))
        nothing = Histogram(metric.buckets, (0.0,) * (len(metric.buckets) + 1))
        found = self.now.histograms.get(metric, {}).get(labels, nothing)
        return found.since(self.before.histograms.get(metric, {}).get(labels))


def make_point(at_ms: int, before_ms: int, before: Series, now: Series, **gauges: Any) -> Point:
    """Return the point for the time between two readings. A sum that became smaller restarted from 0.

    ``gauges`` are fields of the point, as they are at its end.
    """
    # If the clock was set back, the point counts as one of the usual length.
    seconds = (at_ms - before_ms if at_ms > before_ms else POINT_MS) / 1000
    growth = Growth(seconds, before, now)
    jobs, waits = growth.histogram(m.JOB_S), growth.histogram(m.WAIT_S)
    tokens, padding = growth.grown(m.TOKENS), growth.grown(m.PADDING_TOKENS)
    failed = growth.grown(m.ITEMS, None, "failed")
    return Point(
        at_ms=at_ms,
        items_s=(growth.grown(m.ITEMS, None, "succeeded") + failed) / seconds,
        tokens_s=tokens / seconds,
        jobs_s=growth.grown(m.JOBS_ENDED) / seconds,
        failed_s=failed / seconds,
        p50_s=jobs.quantile(0.5),
        p95_s=jobs.quantile(0.95),
        wait_p95_s=waits.quantile(0.95),
        padding_ratio=padding / (tokens + padding) if tokens + padding else None,
        **gauges,
    )


#: Fields of which a merged point has the worst value: latencies and queues. For rates it has the mean.
WORST = frozenset({"p50_s", "p95_s", "wait_p95_s", "backlog_s", "waiting_tokens", "open_items"})


def merge(points: Sequence[Point]) -> Point:
    """Merge consecutive points into one, at the time of the last."""
    merged: dict[str, Any] = {"at_ms": points[-1].at_ms}
    for name in (field.name for field in fields(Point) if field.name != "at_ms"):
        known = [value for value in (getattr(point, name) for point in points) if value is not None]
        worst = name in WORST
        merged[name] = None if not known else max(known) if worst else sum(known) / len(known)
    return Point(**merged)


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most ``most`` points, each of which stands for the same number of consecutive points."""
    group = -(-len(points) // max(1, most))
    return [merge(points[at : at + group]) for at in range(0, len(points), group)] if group > 1 else list(points)


#: The metrics whose sums are in a sample.
SAMPLED = (m.ITEMS, m.JOBS_ENDED, m.TOKENS, m.PADDING_TOKENS, m.JOB_S, m.WAIT_S)


def only_sampled(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the sums that the next point needs."""
    names = tuple(f"{metric.name}|" for metric in SAMPLED)
    return {field: amount for field, amount in sums.items() if field.startswith(names)}
