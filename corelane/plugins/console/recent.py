"""The work done recently: in the last minute as a process has seen it, and from the history. Pure."""

import itertools
from collections import deque
from collections.abc import Sequence

from corelane.domain.overview import DoneCount, ModelOverview, PromiseInfo
from corelane.metrics import definitions as m
from corelane.metrics.series import Series
from corelane.plugins.console.points import POINT_MS, Growth, Point, make_point

#: Rates are over this time, in milliseconds, or over a shorter one while a process has not run for that long.
WINDOW_MS = 60_000

#: The time that counts as now, in milliseconds.
NOW_MS = 10_000

#: Least time between two readings that are kept, in milliseconds.
KEPT_APART_MS = 4_000


class Recent:
    """The readings of the last minute that one process made."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, Series]] = deque()
        self._now = 0, Series({}, {})

    def add(self, at_ms: int, series: Series) -> None:
        """Add a reading."""
        while self._readings and not at_ms - WINDOW_MS - KEPT_APART_MS <= self._readings[0][0] <= at_ms:
            self._readings.popleft()
        if not self._readings or at_ms - self._readings[-1][0] >= KEPT_APART_MS:
            self._readings.append((at_ms, series))
        self._now = at_ms, series

    def rise(self, window_ms: int = WINDOW_MS) -> Growth | None:
        """Return the growth over ``window_ms``, or since the first reading; None without an earlier reading."""
        now_ms, now = self._now
        befores = [reading for reading in self._readings if reading[0] < now_ms]
        if not befores:
            return None
        at_ms, before = next((each for each in reversed(befores) if each[0] <= now_ms - window_ms), befores[0])
        return Growth((now_ms - at_ms) / 1000, before, now)


def stretches(
    points: Sequence[Point], now_ms: int, now: Series, before_ms: int | None, before: Series
) -> list[tuple[int, Point]]:
    """Return each point with the time when it began, and one more point for the time since the last.

    ``before`` holds the sums at the last point. Without a history, all work counts as done just now. Points after now
    were taken before the clock was set back, and are left out.
    """
    points = [point for point in points if point.at_ms <= now_ms]
    found = [(point.at_ms - POINT_MS, point) for point in points[:1]]
    found += [(earlier.at_ms, point) for earlier, point in itertools.pairwise(points)]
    began_ms = now_ms - POINT_MS if before_ms is None else before_ms
    return [*found, (began_ms, make_point(now_ms, began_ms, before, now))]


def count_done(found: Sequence[tuple[int, Point]], since_ms: int) -> DoneCount:
    """Count the work done since a time."""
    items = jobs = failed = 0.0
    for began_ms, point in found:
        seconds = max(0, point.at_ms - max(began_ms, since_ms)) / 1000
        items += point.items_s * seconds
        jobs += point.jobs_s * seconds
        failed += point.failed_s * seconds
    return DoneCount(items=round(items), jobs=round(jobs), failed=round(failed))


def promises_of(series: Series) -> PromiseInfo:
    """Return the outcomes of promises since the beginning."""
    counts = {outcome: int(series.total(m.PROMISES, outcome)) for outcome in ("kept", "early", "late")}
    total = sum(counts.values())
    return PromiseInfo(**counts, hit_rate=round(counts["kept"] / total, 4) if total else None)


def models_of(versions: Sequence[str], rise: Growth | None, cores: int) -> list[ModelOverview]:
    """Return the state of each version; empty before the second reading."""
    return [ModelOverview(version=version) if rise is None else _model(version, rise, cores) for version in versions]


def _model(version: str, rise: Growth, cores: int) -> ModelOverview:
    compute = rise.histogram(m.COMPUTE_S, version)
    failed = rise.grown(m.ITEMS, version, "failed")
    answered = rise.grown(m.ITEMS, version, "succeeded") + failed
    tokens, padding = rise.grown(m.TOKENS, version), rise.grown(m.PADDING_TOKENS, version, None)
    p95 = compute.quantile(0.95)
    return ModelOverview(
        version=version,
        arriving_items_per_s=round(rise.grown(m.ITEMS_SUBMITTED, version) / rise.seconds, 3),
        items_per_s=round(answered / rise.seconds, 3),
        tokens_per_s=round(tokens / rise.seconds, 1),
        padding=round(padding / (tokens + padding), 4) if tokens + padding else None,
        compute_mean_s=round(compute.sum / compute.count, 6) if compute.count else None,
        compute_p95_s=None if p95 is None else round(p95, 6),
        core_share=round(min(1.0, compute.sum / rise.seconds / cores), 4) if cores else None,
        error_rate=round(failed / answered, 4) if answered else None,
    )
