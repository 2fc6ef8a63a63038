"""Whether a run was beyond what the service can do. Pure.

A queue that grows for as long as load is offered is over-saturation, whatever its latency was so far. It shows in two
slopes over the run: of the requests in flight, and of their latency. Both must be above 0 with confidence. In-flight
counts of neighbouring seconds depend on each other, so the slopes are taken over the means of a few blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from corelane.plugins.lab.schema import Run
from corelane.plugins.lab.student import t_reach

#: How sure a slope must be above 0.
CONFIDENCE = 0.95

#: Blocks of a run whose means are fitted. Fewer than MIN_BLOCKS steps have no slope.
BLOCKS, MIN_BLOCKS = 8, 4

#: The first part of a run is left out: an empty service fills up in it.
FILLING_SHARE = 0.15

#: A queue grows if so much of what is sent stays in it. Less is lost in the noise of a run.
STAYS_SHARE = 0.02

#: Requests refused, or not ended in time, as shares of all: more is over-saturation without a look at slopes.
LOST_SHARE = 0.05

#: Of the offered rate: a service that ends less cannot keep up.
ENDED_SHARE = 0.90


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through values over time: its slope by the second, with the interval of CONFIDENCE."""

    slope: float
    low: float
    high: float
    mean: float

    @property
    def rises(self) -> bool:
        """Whether it is above 0 with confidence."""
        return self.low > 0


@dataclass(frozen=True, slots=True)
class Saturation:
    """Whether a run was beyond what the service can do, and why."""

    is_over: bool
    reason: str = ""
    in_flight: Trend | None = None
    wait: Trend | None = None


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Return the line through (time, value), by block means; None if there are too few."""
    blocks = block_means(points)
    if len(blocks) < MIN_BLOCKS:
        return None
    count = len(blocks)
    mean_x, mean_y = (math.fsum(each[axis] for each in blocks) / count for axis in (0, 1))
    spread_x = math.fsum((x - mean_x) ** 2 for x, _ in blocks)
    if not spread_x:
        return None
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in blocks) / spread_x
    residual = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in blocks)
    error = math.sqrt(residual / (count - 2) / spread_x)
    reach = t_reach(CONFIDENCE, count - 2) * error
    return Trend(slope, slope - reach, slope + reach, mean_y)


def block_means(points: Sequence[tuple[float, float]], blocks: int = BLOCKS) -> list[tuple[float, float]]:
    """Return the means of consecutive blocks of about the same size; the points themselves if they are few."""
    size = max(1, len(points) / blocks)
    bounds = [round(number * size) for number in range(min(blocks, len(points)) + 1)]
    parts = [points[start:end] for start, end in pairwise(bounds) if end > start]
    return [(_mean([x for x, _ in part]), _mean([y for _, y in part])) for part in parts]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def saturation(run: Run, rate_per_s: float) -> Saturation:
    """Return whether a run at an offered rate was over-saturated."""
    requests = max(run.requests, 1)
    lost = (run.refused + run.unfinished) / requests
    if lost > LOST_SHARE:
        return Saturation(True, f"{lost:.0%} of requests were refused or not answered in time")
    if run.requests_per_s < ENDED_SHARE * rate_per_s and run.unfinished + run.refused:
        return Saturation(True, f"{run.requests_per_s:,.1f} of {rate_per_s:,.1f} requests/s ended")
    in_flight, wait = run_trends(run)
    if in_flight is None or wait is None:
        return Saturation(False, "", in_flight, wait)
    if in_flight.rises and wait.rises and in_flight.slope > STAYS_SHARE * rate_per_s:
        reason = (
            f"the queue grew by {in_flight.slope:,.1f} requests/s ({in_flight.low:,.1f} to {in_flight.high:,.1f}) and "
            f"latency by {1000 * wait.slope:,.0f} ms/s ({1000 * wait.low:,.0f} to {1000 * wait.high:,.0f})"
        )
        return Saturation(True, reason, in_flight, wait)
    return Saturation(False, "", in_flight, wait)


def run_trends(run: Run) -> tuple[Trend | None, Trend | None]:
    """Return the trends of requests in flight and of median latency, while requests were sent."""
    last = max((at for at, row in enumerate(run.timeline) if row.get("sent")), default=-1)
    # The last second is cut short, as a rule.
    rows = run.timeline[:last] if last > MIN_BLOCKS else run.timeline[: last + 1]
    rows = rows[int(len(rows) * FILLING_SHARE) :]
    in_flight = [(row["at_s"], row["in_flight"]) for row in rows if "in_flight" in row]
    waits = [(row["at_s"], row["p50_s"]) for row in rows if "p50_s" in row]
    return trend(in_flight), trend(waits)
