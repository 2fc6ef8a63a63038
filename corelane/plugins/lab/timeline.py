"""A run second by second. Pure."""

import math
from collections.abc import Sequence
from itertools import pairwise

from corelane.plugins.lab.schema import Request
from corelane.plugins.lab.spreads import percentile

#: Points of a timeline at most: a longer run has steps of several seconds.
MOST_STEPS = 600


def timeline(requests: Sequence[Request], most: int = MOST_STEPS) -> list[dict[str, float]]:
    """Return what was sent, ended and in flight in each step of a second or more, from the start of the run.

    ``p50_s`` and ``p95_s`` are of the requests that ended in that step, and are absent if none did.
    """
    times = [at for each in requests for at in (each.intended_s, each.sent_s, each.ended_s) if at is not None]
    if not times:
        return []
    step_s = max(1, math.ceil(max(times) / most))
    count = int(max(times) // step_s) + 1
    sent, ended, change = [0] * count, [0] * count, [0] * (count + 1)
    latencies: list[list[float]] = [[] for _ in range(count)]
    for each in requests:
        if each.sent_s is None:
            continue
        at = _step(each.sent_s, step_s)
        sent[at] += 1
        change[at] += 1
        if each.ended_s is None:
            continue
        at = _step(each.ended_s, step_s)
        ended[at] += 1
        change[at] -= 1
        if each.outcome == "ok":
            latencies[at].append(each.ended_s - each.intended_s)
    rows, in_flight = [], 0
    for at in range(count):
        in_flight += change[at]
        row = {
            "at_s": float(at * step_s),
            "sent": sent[at] / step_s,
            "ended": ended[at] / step_s,
            "in_flight": float(in_flight),
        }
        if ordered := sorted(latencies[at]):
            row["p50_s"] = percentile(ordered, 50)
            row["p95_s"] = percentile(ordered, 95)
        rows.append(row)
    return rows


def steps_s(rows: Sequence[dict[str, float]]) -> float:
    """Return how long each step of a timeline is."""
    return next((later["at_s"] - row["at_s"] for row, later in pairwise(rows)), 1.0)


def _step(at_s: float, step_s: int) -> int:
    return max(0, int(at_s // step_s))
