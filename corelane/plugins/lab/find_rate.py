"""How much can be offered before an objective breaks: doubling until it does, then halving the gap.

All tries use one seed, so each has the same arrivals, only denser. The answer is confirmed by a longer run. If that
breaks, the next lower rate is confirmed. What broke just above is part of the answer.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.measure import Measure, mean, poisson
from corelane.plugins.lab.schema import Point
from corelane.plugins.lab.sweep import worst

#: Figures that a search may bound, by the names of a point's figures.
FIGURES = {"p50": "p50_s", "p95": "p95_s", "p99": "p99_s", "mean": "mean_s"}

BOUND = re.compile(r"(p50|p95|p99|mean)\s*(?:=|<=?)\s*([0-9]*\.?[0-9]+)\s*(ms|s)", re.IGNORECASE)

#: Requests that failed or were refused, as a share of all, that still count as serving the rate.
FAILED_SHARE = 0.01

#: Tries of the search at most, before its answer is confirmed, and tries to confirm one.
MOST_TRIES, MOST_CONFIRMATIONS = 14, 4

#: A confirmation takes so many times as long as a try.
CONFIRM_TIMES = 3.0

#: Requests that a try must have: a rate with fewer in its time is not tried.
LEAST_REQUESTS = 10


@dataclass(frozen=True, slots=True)
class Bound:
    """The objective of a search: a figure, and the most it may be."""

    figure: str
    limit_s: float

    def __str__(self) -> str:
        """Return it as one writes it."""
        return f"{self.figure}<={1000 * self.limit_s:g}ms"


def parse_bound(text: str) -> Bound:
    """Return the objective that a text such as `p95=200ms` states; raise InvalidInput if it states none."""
    found = BOUND.fullmatch(text.strip())
    if found is None or not float(found[2]):
        raise InvalidInput(f"'{text}' is no objective of a search: write p95=200ms, or p50, p99 or mean")
    return Bound(found[1].lower(), float(found[2]) / (1000 if found[3].lower() == "ms" else 1))


@dataclass(frozen=True, slots=True)
class Try:
    """A rate that was offered, and what came of it; ``reason`` says what broke."""

    rate_per_s: float
    holds: bool
    figure_s: float | None
    reason: str = ""
    is_generator: bool = False
    confirms: bool = False


def judge(point: Point, rate_per_s: float, bound: Bound) -> Try:
    """Return whether a point holds the objective."""
    figure_s = mean(point, FIGURES[bound.figure])
    invalid = next((reason for run in point.runs for reason in run.invalid), "")
    over = worst(point, rate_per_s)
    failed = max(((run.requests - run.ok) / max(run.requests, 1) for run in point.runs), default=1.0)
    if over.is_over:
        return Try(rate_per_s, False, figure_s, f"over-saturated: {over.reason}")
    if failed > FAILED_SHARE:
        return Try(rate_per_s, False, figure_s, f"{failed:.1%} of requests failed or were refused")
    if invalid:
        return Try(rate_per_s, False, figure_s, invalid, is_generator=True)
    if figure_s is None:
        return Try(rate_per_s, False, None, "nothing was answered")
    if figure_s > bound.limit_s:
        return Try(rate_per_s, False, figure_s, f"{bound.figure} was {1000 * figure_s:,.0f} ms")
    return Try(rate_per_s, True, figure_s)


@dataclass(slots=True)
class RateSearch:
    """The decisions of a search: which rate is next, from what the tries before it showed. Pure.

    ``precision`` is the ratio between the rate that breaks and the one that holds at which it ends, less 1.
    """

    start_per_s: float
    precision: float = 0.05
    growth: float = 2.0
    least_per_s: float = 0.0
    low: float = 0.0
    high: float | None = None
    tries: int = 0

    def next_rate(self) -> float | None:
        """Return the next rate to try; None when the search is over."""
        if self.tries >= MOST_TRIES:
            return None
        if not self.low:
            rate = self.start_per_s if self.high is None else self.high / self.growth
            return rate if rate >= self.least_per_s else None
        if self.high is None:
            return self.low * self.growth
        if self.high <= self.low * (1 + self.precision):
            return None
        return (self.low + self.high) / 2

    def note(self, rate_per_s: float, *, holds: bool) -> None:
        """Note what a try showed."""
        self.tries += 1
        if holds:
            self.low = max(self.low, rate_per_s)
        else:
            self.high = rate_per_s if self.high is None else min(self.high, rate_per_s)

    def step_down(self, rate_per_s: float) -> float | None:
        """Return the rate to confirm after one could not be confirmed; None if there is none."""
        lower = rate_per_s * (1 - self.precision)
        return lower if lower >= self.least_per_s else None


@dataclass(slots=True)
class FoundRate:
    """The answer of a search: the confirmed rate, or None if no rate holds the objective."""

    bound: Bound
    rate_per_s: float | None = None
    items_per_s: float | None = None
    figure_s: float | None = None
    broke: Try | None = None
    tries: list[Try] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    @property
    def invalid(self) -> list[str]:
        """Why the search proves nothing: no rate was confirmed, and the generator was the limit of one.

        Tries that broke are a part of every search, so they are no reason.
        """
        limited = [each.reason for each in self.tries if each.is_generator]
        return limited[:1] if self.rate_per_s is None else []

    def describe(self) -> dict[str, Any]:
        """Return it as a report has it."""
        return {
            "objective": str(self.bound),
            "rate_per_s": self.rate_per_s,
            "items_per_s": self.items_per_s,
            "figure_s": self.figure_s,
            "broke": None if self.broke is None else _row(self.broke),
            "limited_by_generator": self.broke is not None and self.broke.is_generator,
            "tries": [_row(each) for each in self.tries],
        }


def _row(found: Try) -> dict[str, Any]:
    return {
        "rate_per_s": round(found.rate_per_s, 3),
        "holds": found.holds,
        "figure_s": found.figure_s,
        "reason": found.reason,
        "confirms": found.confirms,
    }


def find_rate(
    measure: Measure,
    bound: Bound,
    *,
    start_per_s: float,
    duration_s: float = 20.0,
    precision: float = 0.05,
    seed: int = 0,
    on_try: Callable[[Try], None] | None = None,
) -> FoundRate:
    """Search the highest rate that holds an objective, and confirm it; raise SetupError where the generator gives up.

    ``start_per_s`` is the first rate. A good one, half of the peak, saves tries.
    """
    found = FoundRate(bound)
    search = RateSearch(start_per_s, precision, least_per_s=LEAST_REQUESTS / duration_s)

    def offer(rate_per_s: float, seconds: float, *, confirms: bool) -> Try:
        point = measure(f"{rate_per_s:.4g}/s", poisson(rate_per_s, seconds, seed))
        verdict = judge(point, rate_per_s, bound)
        verdict = Try(rate_per_s, verdict.holds, verdict.figure_s, verdict.reason, verdict.is_generator, confirms)
        found.tries.append(verdict)
        found.points.append(point)
        if on_try is not None:
            on_try(verdict)
        return verdict

    while (rate_per_s := search.next_rate()) is not None:
        verdict = offer(rate_per_s, duration_s, confirms=False)
        if verdict.is_generator:
            # A moment in which the generator was late says nothing of the service: once more.
            verdict = offer(rate_per_s, duration_s, confirms=False)
        search.note(rate_per_s, holds=verdict.holds)
    to_confirm: float | None = search.low or None
    for _ in range(MOST_CONFIRMATIONS):
        if to_confirm is None:
            break
        verdict = offer(to_confirm, CONFIRM_TIMES * duration_s, confirms=True)
        if verdict.holds:
            found.rate_per_s, found.figure_s = to_confirm, verdict.figure_s
            found.items_per_s = mean(found.points[-1], "items_per_s")
            break
        to_confirm = search.step_down(to_confirm)
    held = {each.rate_per_s for each in found.tries if each.holds}
    broken = [each for each in found.tries if not each.holds and each.rate_per_s > (found.rate_per_s or 0.0)]
    broken = [each for each in broken if each.rate_per_s not in held] or broken
    found.broke = min(broken, key=lambda each: each.rate_per_s, default=None)
    if found.rate_per_s is None and found.broke is not None and all(each.is_generator for each in broken):
        raise SetupError(f"the generator kept up with no rate that was tried: {found.broke.reason}")
    return found
