"""Find the highest rate that meets an objective: double the rate until it fails, then halve the gap.

All tries use one seed, so each has the same arrivals, only denser. What it finds is confirmed by a longer run. If that
fails, the next lower rate is confirmed. The failure just above is part of the result.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from corelane.errors import SetupError
from corelane.plugins.lab.figures import Objective
from corelane.plugins.lab.schema import LoadPoint
from corelane.plugins.lab.sweep import Measure, mean_of, poisson, why_over

#: The figures that an objective may limit.
BOUNDED = ("p95", "p50", "p99", "mean")

#: A rate fails if more than this share of its requests failed or were refused.
FAILED_SHARE = 0.01

#: Tries of the search at most, before what it found is confirmed, and tries to confirm one.
MOST_TRIES, MOST_CONFIRMATIONS = 14, 4

#: A confirmation takes this many times as long as a try.
CONFIRM_TIMES = 3.0

#: Requests that a try must have: a rate with fewer in its time is not tried.
LEAST_REQUESTS = 10

#: Factor between two rates while all rates passed, or all failed; the gap, as a share, at which a search ends.
GROWTH, PRECISION = 2.0, 0.05


@dataclass(frozen=True, slots=True)
class Try:
    """A rate that was offered, and the outcome; ``reason`` says why it failed."""

    rate_per_s: float
    holds: bool
    figure_s: float | None
    reason: str = ""
    is_generator: bool = False
    confirms: bool = False


def judge(point: LoadPoint, rate_per_s: float, bound: Objective) -> Try:
    """Return whether a point meets the objective."""
    figure_s = mean_of(point, f"{bound.timed}_s")
    invalid = next((reason for run in point.runs for reason in run.invalid), "")
    failed = max(((run.requests - run.ok) / max(run.requests, 1) for run in point.runs), default=1.0)
    is_generator = False
    if over := why_over(point, rate_per_s):
        reason = f"over-saturated: {over}"
    elif failed > FAILED_SHARE:
        reason = f"{failed:.1%} of requests failed or were refused"
    elif invalid:
        reason, is_generator = invalid, True
    elif figure_s is None:
        reason = "nothing was answered"
    else:
        reason = f"{bound.timed} was {1000 * figure_s:,.0f} ms" if figure_s > bound.limit_s else ""
    return Try(rate_per_s, not reason, figure_s, reason, is_generator)


@dataclass(slots=True)
class FoundRate:
    """The result of a search: the confirmed rate, or None if no rate meets the objective."""

    bound: Objective
    rate_per_s: float | None = None
    items_per_s: float | None = None
    figure_s: float | None = None
    tries: list[Try] = field(default_factory=list)
    points: list[LoadPoint] = field(default_factory=list)

    @property
    def broke(self) -> Try | None:
        """The lowest failed rate above the result; one that passed in another try only if there is no other."""
        held = {each.rate_per_s for each in self.tries if each.holds}
        broken = [each for each in self.tries if not each.holds and each.rate_per_s > (self.rate_per_s or 0.0)]
        return min(broken, key=lambda each: (each.rate_per_s in held, each.rate_per_s), default=None)

    @property
    def invalid(self) -> list[str]:
        """Why the search proves nothing: no rate was confirmed, and in some try the generator did not keep up."""
        limited = [each.reason for each in self.tries if each.is_generator]
        return limited[:1] if self.rate_per_s is None else []

    def describe(self) -> dict[str, Any]:
        """Return the result in the form of a report."""
        broke = self.broke
        return {
            "objective": str(self.bound),
            **{name: getattr(self, name) for name in ("rate_per_s", "items_per_s", "figure_s")},
            "broke": None if broke is None else asdict(broke),
            "limited_by_generator": broke is not None and broke.is_generator,
            "tries": [asdict(each) for each in self.tries],
        }


def find_rate(
    measure: Measure, bound: Objective, *, start_per_s: float, duration_s: float = 20.0, seed: int = 0
) -> FoundRate:
    """Search the highest rate that meets an objective, and confirm it; raise SetupError if the generator fails."""
    found = FoundRate(bound)
    least_per_s = LEAST_REQUESTS / duration_s

    def offer(rate_per_s: float, seconds: float) -> Try:
        point = measure(f"{rate_per_s:.4g}/s", poisson(rate_per_s, seconds, seed))
        found.points.append(point)
        found.tries.append(judge(point, rate_per_s, bound))
        return found.tries[-1]

    low, high = 0.0, None
    for _ in range(MOST_TRIES):
        rate_per_s = next_rate(low, high, start_per_s)
        if rate_per_s is None or rate_per_s < least_per_s:
            break
        verdict = offer(rate_per_s, duration_s)
        if verdict.is_generator:
            # If the generator was late for a moment, the try says nothing about the service, and is repeated.
            verdict = offer(rate_per_s, duration_s)
        low, high = (rate_per_s, high) if verdict.holds else (low, rate_per_s)
    for _ in range(MOST_CONFIRMATIONS if low else 0):
        verdict = replace(offer(low, CONFIRM_TIMES * duration_s), confirms=True)
        found.tries[-1] = verdict
        if verdict.holds:
            found.rate_per_s, found.figure_s = low, verdict.figure_s
            found.items_per_s = mean_of(found.points[-1], "items_per_s")
            break
        low *= 1 - PRECISION
        if low < least_per_s:
            break
    broken = [each for each in found.tries if not each.holds]
    if found.rate_per_s is None and broken and all(each.is_generator for each in broken):
        raise SetupError(f"the generator kept up with no rate that was tried: {broken[0].reason}")
    return found


def next_rate(low: float, high: float | None, start_per_s: float) -> float | None:
    """Return the rate between the highest that passed and the lowest that failed; None at the end of the search."""
    if high is None:
        return low * GROWTH or start_per_s
    if not low:
        return high / GROWTH
    return (low + high) / 2 if high > low * (1 + PRECISION) else None
