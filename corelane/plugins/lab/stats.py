"""Spreads, intervals and timelines of what was measured. Pure.

A percentile is by nearest rank: the smallest value such that at least this percentage of all values are no larger. So
it is a time that a request really took, and p99 of fewer than 100 values is the largest value.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from corelane.errors import SetupError
from corelane.errors.extras import install_command
from corelane.plugins.lab.schema import Interval, Request, Spread

Item = TypeVar("Item")

#: The confidence level of an interval.
CONFIDENCE = 0.95

#: Most points of a timeline: a longer run has steps of several seconds.
MOST_STEPS = 600


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of values in ascending order, by nearest rank."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Iterable[float]) -> Spread | None:
    """Return how values are spread; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in (50, 90, 95, 99))
    # A sum of floats may put the mean of equal values beside them.
    mean = min(max(statistics.fmean(ordered), ordered[0]), ordered[-1])
    return Spread(count=len(ordered), mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of repeats with its interval by the t distribution. A single value has no width."""
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    reach = t_reach(CONFIDENCE, len(values) - 1) * standard_error(values) if deviation else 0.0
    cv = deviation / abs(mean) if mean else 0.0
    return Interval(mean=mean, low=mean - reach, high=mean + reach, cv=cv, values=list(values))


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of two values or more."""
    return statistics.stdev(values) / math.sqrt(len(values))


def t_reach(confidence: float, freedom: float) -> float:
    """Return how many standard errors an interval extends to each side; raise SetupError without scipy."""
    try:
        from scipy.special import stdtrit
    except ImportError:
        raise SetupError(f"intervals need scipy: run `{install_command('lab')}`") from None
    return float(stdtrit(freedom, (1 + confidence) / 2))


def thinned(ordered: Sequence[Item], most: int) -> list[Item]:
    """Return values at even places, with the first and the last; all of them if they are few."""
    if len(ordered) <= most:
        return list(ordered)
    return [ordered[round(at * (len(ordered) - 1) / (most - 1))] for at in range(most)]


def timeline(requests: Sequence[Request], most: int = MOST_STEPS) -> list[dict[str, float]]:
    """Return what was sent, ended and in flight by steps of a second or more, and latencies of what ended in each."""
    last_s = max((max(each.intended_s, each.sent_s or 0, each.ended_s or 0) for each in requests), default=None)
    if last_s is None:
        return []
    step_s = max(1, math.ceil(last_s / most))
    sent: Counter[int] = Counter()
    ended: dict[int, list[Request]] = defaultdict(list)
    for each in requests:
        if each.sent_s is not None:
            sent[max(0, int(each.sent_s // step_s))] += 1
            if each.ended_s is not None:
                ended[max(0, int(each.ended_s // step_s))].append(each)
    rows, in_flight = [], 0
    for at in range(int(last_s // step_s) + 1):
        in_flight += sent[at] - len(ended[at])
        row = {"at_s": at * step_s, "sent": sent[at] / step_s, "ended": len(ended[at]) / step_s, "in_flight": in_flight}
        if ordered := sorted(latencies(ended[at])):
            row |= {"p50_s": percentile(ordered, 50), "p95_s": percentile(ordered, 95)}
        rows.append({name: float(value) for name, value in row.items()})
    return rows


def latencies(requests: Iterable[Request]) -> list[float]:
    """Return the latencies of the answered requests, from when they were due."""
    return [each.ended_s - each.intended_s for each in requests if each.outcome == "ok" and each.ended_s is not None]
