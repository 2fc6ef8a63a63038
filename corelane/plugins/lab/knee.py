"""The knee of a sweep: the rate beyond which latency bends upwards. Pure.

It is where two joined lines fit latency over rate best, the second steeper. Latency is fitted by its logarithm, as at
over-saturation it has no value of its own: it grows with the length of the run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corelane.plugins.lab.schema import Point

#: Places between two rates at which a knee is looked for.
GRID = 400

#: Two lines must leave less than so much of the squared error of one.
LEFT_SHARE = 0.5

#: Latency from the knee to the last rate grows by this factor at least: less is noise.
LEAST_RISE = 1.5

#: A bent line: its value at 0, its slope, and what the slope gains at the bend.
Line = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Knee:
    """Where latency bends. ``is_fitted`` if two lines found it, else it is the last rate before over-saturation."""

    rate_per_s: float
    p95_s: float
    items_per_s: float
    is_fitted: bool

    def figures(self) -> dict[str, float]:
        """Return it as a report has it."""
        return {
            "rate_per_s": round(self.rate_per_s, 3),
            "p95_s": round(self.p95_s, 6),
            "items_per_s": round(self.items_per_s, 3),
            "fitted": float(self.is_fitted),
        }


def find_knee(points: Sequence[Point], is_over: Mapping[str, bool]) -> Knee | None:
    """Return the knee of a sweep's points; None if no open-loop point was within what the service can do.

    ``is_over`` says by their names which points were over-saturated.
    """
    rated = sorted(
        (point.load.rate_per_s, point.figures["p95_s"].mean, point.figures["items_per_s"].mean, point.name)
        for point in points
        if point.load.rate_per_s and "p95_s" in point.figures
    )
    within = [each for each in rated if not is_over.get(each[3])]
    if not within:
        return None
    found = bend([(rate, p95_s) for rate, p95_s, _, _ in rated])
    if found is not None and found[0] <= within[-1][0] * 1.000001:
        rate, p95_s = found
        items = interpolate([(each[0], each[2]) for each in within], rate)
        return Knee(rate, p95_s, items, True)
    rate, p95_s, items, _ = within[-1]
    return Knee(rate, p95_s, items, False)


def bend(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return where two joined lines fit (rate, latency) best, and the latency there; None if one line does as well.

    At least two points lie on either side.
    """
    if len(points) < 4:
        return None
    rates, logs = [rate for rate, _ in points], [math.log(max(latency, 1e-9)) for _, latency in points]
    single = _fit(rates, logs, None)
    low, high = rates[1], rates[-2]
    best: tuple[float, float, Line] | None = None
    for step in range(GRID + 1):
        place = low + (high - low) * step / GRID
        error, line = _fit(rates, logs, place)
        _, slope, gain = line
        rises = (slope + gain) * (rates[-1] - place) >= math.log(LEAST_RISE)
        if rises and gain > max(slope, 0.0) and (best is None or error < best[0]):
            best = error, place, line
    if best is None or best[0] > LEFT_SHARE * single[0]:
        return None
    _, place, (offset, slope, _) = best
    return place, math.exp(offset + slope * place)


def _fit(
    rates: Sequence[float], logs: Sequence[float], place: float | None
) -> tuple[float, tuple[float, float, float]]:
    """Fit ``a + b x + c max(0, x - place)`` by least squares; return the squared error and the three coefficients."""
    columns = [[1.0] * len(rates), list(rates)]
    if place is not None:
        columns.append([max(0.0, rate - place) for rate in rates])
    found = _solve(
        [[math.fsum(map(_times, one, other)) for other in columns] for one in columns],
        [math.fsum(map(_times, column, logs)) for column in columns],
    )
    if found is None:
        return math.inf, (0.0, 0.0, 0.0)
    fitted = [math.fsum(weight * column[at] for weight, column in zip(found, columns, strict=True))
              for at in range(len(rates))]  # fmt: skip
    error = math.fsum((value - own) ** 2 for value, own in zip(logs, fitted, strict=True))
    offset, slope, *more = found
    return error, (offset, slope, more[0] if more else 0.0)


def _times(one: float, other: float) -> float:
    return one * other


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Solve a small system by elimination with pivots; None if it has no single solution."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda each: abs(rows[each][at]))
        if abs(rows[pivot][at]) < 1e-12:
            return None
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(size):
            if below != at:
                factor = rows[below][at] / rows[at][at]
                rows[below] = [value - factor * own for value, own in zip(rows[below], rows[at], strict=True)]
    return [rows[at][size] / rows[at][at] for at in range(size)]


def interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value at ``x`` on straight lines between points in order; beyond them that of the nearest."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
