"""How values are spread, and the interval of their mean. Pure.

A percentile is by nearest rank: the smallest value that at least so much of all values do not exceed. So it is a time
that a request really took, and p99 of fewer than 100 values is the longest.
"""

import math
from collections.abc import Iterable, Sequence

from corelane.plugins.lab.schema import Interval, Spread
from corelane.plugins.lab.student import t_reach

#: How sure an interval is.
CONFIDENCE = 0.95


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
    mean = min(max(math.fsum(ordered) / len(ordered), ordered[0]), ordered[-1])
    return Spread(count=len(ordered), mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of repeats with its interval by the t distribution; that of one value is the value."""
    count, mean = len(values), math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (count - 1)) if count > 1 else 0.0
    reach = t_reach(confidence, count - 1) * deviation / math.sqrt(count) if deviation else 0.0
    cv = deviation / abs(mean) if mean else 0.0
    return Interval(mean=mean, low=mean - reach, high=mean + reach, cv=cv, values=list(values))


def thinned(ordered: Sequence[float], most: int) -> list[float]:
    """Return values at even ranks, with the first and the last; all of them if they are few."""
    if len(ordered) <= most:
        return list(ordered)
    return [ordered[round(at * (len(ordered) - 1) / (most - 1))] for at in range(most)]
