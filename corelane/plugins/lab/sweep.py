"""The sweep: from the latency of an idle service to the rate it cannot keep up with, and the knee between.

Two closed loops mark the ends: one caller, and ``CALLERS`` callers, so that the service always has work. Rates between
them are then offered in an open loop, the lowest first, and more if the service keeps up with all. The sweep stops at
the first over-saturated rate: beyond it, figures depend on the length of the run and no longer on the service.

Over-saturation means that the queue grows for as long as load is offered, whatever the latency was so far. It shows in
two slopes over the run: of the requests in flight, and of their latency. Both must be above 0 with confidence.
In-flight counts of neighbouring seconds depend on each other, so the slopes are taken over the means of a few blocks.

The knee is where two joined lines fit latency over rate best, the second steeper. Latency is fitted by its logarithm,
as at over-saturation it has no steady value: it grows with the length of the run.
"""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from corelane.errors import SetupError
from corelane.plugins.lab.schema import Load, LoadPoint, Run
from corelane.plugins.lab.stats import t_reach

#: Measures the point of this name under a load, for the load's ``duration_s``.
Measure = Callable[[str, Load], LoadPoint]

#: The rates of a sweep, as shares of the peak: from light load to more than can be done.
LEAST_SHARE, MOST_SHARE = 0.1, 1.15

#: If a service keeps up with all rates, up to ``MOST_MORE`` rates follow, each ``MORE`` times the one before: callers
#: who wait for results may not show all that a service can do.
MORE, MOST_MORE = 1.25, 4

#: Callers that keep a service at its peak: more than a batch on each of many cores.
CALLERS = 64

#: Names of the two closed loops.
IDLE, PEAK = "idle", "peak"

#: How sure a slope must be above 0.
CONFIDENCE = 0.95

#: A line is fitted to the means of this many blocks of a run. A run of fewer than MIN_BLOCKS steps has no slope.
BLOCKS, MIN_BLOCKS = 8, 4

#: The first part of a run is left out: an empty service fills up in it.
FILLING_SHARE = 0.15

#: A queue grows if this share of the sent requests stays in it. Less is lost in the noise of a run.
STAYS_SHARE = 0.02

#: If more than this share of requests is refused or not done in time, the run is over-saturated at any slope.
LOST_SHARE = 0.05

#: A service that ends less than this share of the offered rate cannot keep up.
ENDED_SHARE = 0.90

#: Places between two rates at which a knee is searched for.
GRID = 400

#: Two lines must leave less than this share of the squared error of one line.
LEFT_SHARE = 0.5

#: Latency from the knee to the last rate grows by this factor at least: less is noise.
LEAST_RISE = 1.5


def poisson(rate_per_s: float, duration_s: float, seed: int = 0) -> Load:
    """Return the load of independent callers, by requests a second."""
    return Load(kind="poisson", rate_per_s=rate_per_s, duration_s=duration_s, seed=seed)


def mean_of(point: LoadPoint, figure: str) -> float | None:
    """Return a figure of a point over its runs; None if a run has none."""
    found = point.figures.get(figure)
    return None if found is None else found.mean


class Trend(NamedTuple):
    """A straight line through values over time: its slope per second, with the interval of CONFIDENCE."""

    slope: float
    low: float
    high: float


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Return the line fitted to the averages of blocks of (time, value) points; None if there are too few."""
    if len(points) < MIN_BLOCKS:
        return None
    import numpy as np
    from scipy.stats import linregress

    parts = np.array_split(np.array(points), min(BLOCKS, len(points)))
    blocks = np.array([part.mean(axis=0) for part in parts])
    line = linregress(blocks[:, 0], blocks[:, 1])
    slope, reach = float(line.slope), float(line.stderr) * t_reach(CONFIDENCE, len(blocks) - 2)
    return Trend(slope, slope - reach, slope + reach)


def saturation(run: Run, rate_per_s: float) -> str:
    """Return why a run at an offered rate was over-saturated; empty if it was not."""
    lost = (run.refused + run.unfinished) / max(run.requests, 1)
    if lost > LOST_SHARE:
        return f"{lost:.0%} of requests were refused or not answered in time"
    if run.requests_per_s < ENDED_SHARE * rate_per_s and run.unfinished + run.refused:
        return f"{run.requests_per_s:,.1f} of {rate_per_s:,.1f} requests/s ended"
    in_flight, wait = run_trends(run)
    if in_flight is None or wait is None or min(in_flight.low, wait.low) <= 0:
        return ""
    if in_flight.slope <= STAYS_SHARE * rate_per_s:
        return ""
    return (
        f"the queue grew by {in_flight.slope:,.1f} requests/s ({in_flight.low:,.1f} to {in_flight.high:,.1f}) and "
        f"latency by {1000 * wait.slope:,.0f} ms/s ({1000 * wait.low:,.0f} to {1000 * wait.high:,.0f})"
    )


def run_trends(run: Run) -> tuple[Trend | None, Trend | None]:
    """Return the trends of requests in flight and of median latency, while requests were sent."""
    last = max((at for at, row in enumerate(run.timeline) if row.get("sent")), default=-1)
    # The last second is usually cut short.
    rows = run.timeline[:last] if last > MIN_BLOCKS else run.timeline[: last + 1]
    rows = rows[int(len(rows) * FILLING_SHARE) :]
    in_flight = [(row["at_s"], row["in_flight"]) for row in rows if "in_flight" in row]
    waits = [(row["at_s"], row["p50_s"]) for row in rows if "p50_s" in row]
    return trend(in_flight), trend(waits)


def why_over(point: LoadPoint, rate_per_s: float) -> str:
    """Return why the first over-saturated run of a point was so; empty if none was."""
    return next(filter(None, (saturation(run, rate_per_s) for run in point.runs)), "")


def find_knee(points: Sequence[LoadPoint], over: Container[str]) -> dict[str, float] | None:
    """Return the knee of a sweep's points; None if the service kept up with no open-loop point.

    ``over`` holds the names of the over-saturated points. ``fitted`` is 1 if two lines found the knee, and 0 if it is
    the last rate before over-saturation.
    """
    import numpy as np

    rated = sorted(
        (point.load.rate_per_s, point.figures["p95_s"].mean, point.figures["items_per_s"].mean, point.name)
        for point in points
        if point.load.rate_per_s and "p95_s" in point.figures
    )
    within = [each for each in rated if each[3] not in over]
    if not within:
        return None
    rate, p95_s, items, _ = within[-1]
    found = bend([(each[0], each[1]) for each in rated])
    if found is not None and found[0] > rate * 1.000001:
        found = None
    if found is not None:
        rate, p95_s = found
        items = float(np.interp(rate, [each[0] for each in within], [each[2] for each in within]))
    return {"rate_per_s": rate, "p95_s": p95_s, "items_per_s": items, "fitted": float(found is not None)}


def bend(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return where two joined lines of two points or more fit (rate, latency) best; None if one does as well."""
    if len(points) < 4:
        return None
    import numpy as np

    rates, latencies = np.array(points).T
    logs = np.log(np.maximum(latencies, 1e-9))

    def fit(*columns: Any) -> tuple[float, list[float]]:
        matrix = np.column_stack([np.ones_like(rates), rates, *columns])
        line = np.linalg.lstsq(matrix, logs, rcond=None)[0]
        return float(((logs - matrix @ line) ** 2).sum()), [float(each) for each in line]

    bends = []
    for place in np.linspace(rates[1], rates[-2], GRID + 1):
        error, (offset, slope, gain) = fit(np.maximum(0, rates - place))
        rises = (slope + gain) * (rates[-1] - place) >= math.log(LEAST_RISE)
        if rises and gain > max(slope, 0.0):
            bends.append((error, float(place), math.exp(offset + slope * place)))
    error, place, latency_s = min(bends, default=(math.inf, 0.0, 0.0))
    return None if error > LEFT_SHARE * fit()[0] else (place, latency_s)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The plan of a sweep: number of open-loop points, callers at the peak, and each point's duration."""

    points: int = 8
    callers: int = CALLERS
    duration_s: float = 30.0
    seed: int = 0

    def rates(self, peak_per_s: float) -> list[float]:
        """Return rates at even distances, then the higher rates for a service that keeps up with all of them."""
        step = (MOST_SHARE - LEAST_SHARE) / max(1, self.points - 1)
        shares = [LEAST_SHARE + step * number for number in range(self.points)]
        if self.points == 1:
            shares = [(LEAST_SHARE + MOST_SHARE) / 2]
        shares += [shares[-1] * MORE**more for more in range(1, MOST_MORE + 1)]
        return [peak_per_s * share for share in shares]


@dataclass(slots=True)
class Sweep:
    """The result of a sweep. ``over`` says why points were over-saturated, ``stopped`` why it ended early."""

    points: list[LoadPoint] = field(default_factory=list)
    over: dict[str, str] = field(default_factory=dict)
    knee: dict[str, float] | None = None
    stopped: str = ""

    @property
    def invalid(self) -> list[str]:
        """Why the sweep is invalid. A late generator at an over-saturated point does not make the sweep invalid."""
        points = [point for point in self.points if point.name not in self.over]
        return [f"{point.name}: {reason}" for point in points for run in point.runs for reason in run.invalid]


def sweep(measure: Measure, plan: SweepPlan) -> Sweep:
    """Measure the points of a sweep, and return them with the knee; raise SetupError if nothing was answered."""
    found = Sweep()
    for name, callers in ((IDLE, 1), (PEAK, plan.callers)):
        load = Load(kind="closed", concurrency=callers, duration_s=plan.duration_s, seed=plan.seed)
        found.points.append(measure(name, load))
    peak_per_s = mean_of(found.points[-1], "requests_per_s")
    if not peak_per_s:
        raise SetupError("nothing was answered at the peak: there is nothing to sweep")
    for rate_per_s in plan.rates(peak_per_s):
        name = f"{rate_per_s:.4g}/s"
        point = measure(name, poisson(rate_per_s, plan.duration_s, plan.seed))
        found.points.append(point)
        if reason := why_over(point, rate_per_s):
            found.over[name], found.stopped = reason, f"{name} is over-saturated: {reason}"
            break
        if not point.is_valid:
            found.stopped = f"{name} proves nothing: {next(run.invalid[0] for run in point.runs if run.invalid)}"
            break
    found.knee = find_knee([each for each in found.points if each.is_valid or each.name in found.over], found.over)
    return found
