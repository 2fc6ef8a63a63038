"""The figures of a run. Pure.

Percentiles are of answered requests, if there are at least two; failures are counted separately. Items a second counts
items answered within the time of the load, whenever they were sent: under overload that is what the service can do.
"""

from collections import Counter
from typing import Any

import numpy as np

from corelane.plugins.bench.load import Run

#: The percentiles that are shown.
PERCENTILES = (50, 95, 99)


def figures_of(run: Run, price_per_hour: float | None = None) -> dict[str, Any]:
    """Return the figures of a run; times in milliseconds, shares from 0 to 1. A figure that is not known is None."""
    answered = [each for each in run.requests if not each.is_failed]
    taken = [each.ended_s - each.due_s for each in answered]
    times = np.percentile(taken, PERCENTILES) if len(taken) > 1 else [None] * len(PERCENTILES)
    items = sum(each.answered for each in answered if each.ended_s <= run.seconds)
    per_s = items / run.seconds
    f1 = [score for each in answered for score in each.f1]
    cost = cost_per_million(per_s, price_per_hour) if price_per_hour and per_s else None
    return {
        "seconds": round(run.seconds, 3),
        "requests": len(run.requests),
        "items": sum(each.answered for each in answered),
        "items_per_s": round(per_s, 2),
        **{f"p{name}_ms": time and round(1000 * float(time), 2) for name, time in zip(PERCENTILES, times, strict=True)},
        "failed": dict(Counter(code for each in run.requests for code in each.failures)),
        "f1": round(100 * float(np.mean(f1)), 2) if f1 else None,
        "cost_per_million": cost and round(cost, 4),
        "client_cpu": round(run.cpu_s / run.seconds, 3),
    }


def cost_per_million(items_per_s: float, price_per_hour: float) -> float:
    """Return what a million items cost on hosts of this price, in its currency."""
    return 1e6 / items_per_s * price_per_hour / 3600
