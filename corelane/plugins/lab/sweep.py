"""The sweep: from the latency of an idle service to the rate it cannot keep up with, and the knee between.

Two closed loops mark the ends: one caller, and so many that the service is never without work. Rates between them are
then offered in an open loop, the lowest first, and more if the service keeps up with all. The sweep stops at the first
that is over-saturated: beyond it, figures tell of the length of the run and no more of the service.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from corelane.errors import SetupError
from corelane.plugins.lab.knee import Knee, find_knee
from corelane.plugins.lab.measure import Measure, closed, mean, poisson
from corelane.plugins.lab.saturation import Saturation, saturation
from corelane.plugins.lab.schema import Point

#: The rates of a sweep, as shares of the peak: from light load to more than can be done.
LEAST_SHARE, MOST_SHARE = 0.1, 1.15

#: A service that keeps up with all of them is offered more, by steps of this factor, and so many at most: callers who
#: wait for answers may show less than a service can do.
MORE, MOST_MORE = 1.25, 4

#: Callers that keep a service at its peak: more than a batch on each of many cores.
CALLERS = 64

#: Names of the two closed loops.
IDLE, PEAK = "idle", "peak"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """How a sweep goes: open-loop points up to just above the peak, callers at the peak, the length of each point."""

    points: int = 8
    callers: int = CALLERS
    duration_s: float = 30.0
    seed: int = 0


@dataclass(slots=True)
class Sweep:
    """What a sweep found. ``stopped`` says at which point it ended early, and why."""

    points: list[Point] = field(default_factory=list)
    saturations: dict[str, Saturation] = field(default_factory=dict)
    knee: Knee | None = None
    stopped: str = ""

    @property
    def is_over(self) -> dict[str, bool]:
        """Whether points were over-saturated, by their names."""
        return {name: found.is_over for name, found in self.saturations.items()}

    @property
    def invalid(self) -> list[str]:
        """Why the sweep proves nothing. A generator that is late where the service is over-saturated is no reason."""
        points = [point for point in self.points if not self.is_over.get(point.name)]
        return [f"{point.name}: {reason}" for point in points for run in point.runs for reason in run.invalid]

    def describe(self) -> dict[str, object]:
        """Return what the report says in addition to points and knee."""
        reasons = {name: found.reason for name, found in self.saturations.items() if found.is_over}
        return {"over_saturated": reasons, "stopped": self.stopped}


def rates_of(peak_per_s: float, points: int) -> list[float]:
    """Return rates at even distances; one point is the middle."""
    if points == 1:
        return [peak_per_s * (LEAST_SHARE + MOST_SHARE) / 2]
    step = (MOST_SHARE - LEAST_SHARE) / (points - 1)
    return [peak_per_s * (LEAST_SHARE + step * number) for number in range(points)]


def and_more(rates: list[float]) -> list[float]:
    """Return rates with those that follow where a service keeps up with all."""
    return rates + [rates[-1] * MORE**step for step in range(1, MOST_MORE + 1)]


def sweep(measure: Measure, plan: SweepPlan, on_point: Callable[[Point], None] | None = None) -> Sweep:
    """Measure the points of a sweep, and return them with the knee; raise SetupError if nothing was answered."""
    found = Sweep()

    def add(point: Point) -> Point:
        found.points.append(point)
        if on_point is not None:
            on_point(point)
        return point

    add(measure(IDLE, closed(1, plan.duration_s, plan.seed)))
    peak = add(measure(PEAK, closed(plan.callers, plan.duration_s, plan.seed)))
    peak_per_s = mean(peak, "requests_per_s")
    if not peak_per_s:
        raise SetupError("nothing was answered at the peak: there is nothing to sweep")
    for rate_per_s in and_more(rates_of(peak_per_s, plan.points)):
        name = f"{rate_per_s:.4g}/s"
        point = add(measure(name, poisson(rate_per_s, plan.duration_s, plan.seed)))
        found.saturations[name] = worst(point, rate_per_s)
        if found.saturations[name].is_over:
            found.stopped = f"{name} is over-saturated: {found.saturations[name].reason}"
            break
        if not point.is_valid:
            found.stopped = f"{name} proves nothing: {point.runs[-1].invalid[0] if point.runs else 'no run'}"
            break
    valid = [point for point in found.points if point.is_valid or found.is_over.get(point.name)]
    found.knee = find_knee(valid, found.is_over)
    return found


def worst(point: Point, rate_per_s: float) -> Saturation:
    """Return the first over-saturated run of a point, else the last run."""
    runs = [saturation(run, rate_per_s) for run in point.runs]
    return next((each for each in runs if each.is_over), runs[-1] if runs else Saturation(False))
