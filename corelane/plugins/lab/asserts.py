"""Requirements for a run: ``--assert "p95<200ms"``. Pure.

Times and rates are means over the repeats, counts are sums. An assertion holds if it holds at every point. It fails
if its figure was not measured.
"""

import operator
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corelane.errors import InvalidInput
from corelane.plugins.lab.schema import LoadPoint, Report, Run
from corelane.plugins.lab.texts import share_text, three, time_text

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

ASSERTION = re.compile(r"\s*([a-z_0-9]+)\s*(<=|>=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|%)?\s*", re.I)

#: The percentiles of a spread, its mean and its maximum.
SPREAD = ("p50", "p90", "p95", "p99", "mean", "max")

#: Every figure that can be asserted, and its place in a run, by the kind of its value.
TIMES = {
    **{name: f"latency.{name}" for name in SPREAD},
    **{f"{name}_sent": f"latency_sent.{name}" for name in SPREAD},
    **{f"first_{name}": f"first.{name}" for name in SPREAD},
    **{f"lateness_{name}": f"generator.lateness.{name}" for name in SPREAD},
}
SHARES = {
    "goodput": "goodput.share",
    "achieved": "generator.achieved_share",
    "padding": "server.padding_share",
    "core_busy": "server.busy",
}
PERCENTS = {"exact": "results.exact", "f1": "results.f1"}
RATES = {name: name for name in ("items_per_s", "requests_per_s", "tokens_per_s")}
COUNTS = {
    "errors": "failed",
    "refused": "refused",
    "unfinished": "unfinished",
    "lost": "results.lost",
    "twice": "results.twice",
    "wrong": "results.differ_from_idle",
}
PATHS = TIMES | SHARES | PERCENTS | RATES | COUNTS


@dataclass(frozen=True, slots=True)
class Assertion:
    """A figure, an operator and a limit, in seconds or as a share."""

    text: str
    figure: str
    sign: str
    limit: float

    def holds(self, value: float | None) -> bool:
        """Return whether a value meets the limit."""
        return value is not None and OPERATORS[self.sign](value, self.limit)


def parse_assertion(text: str) -> Assertion:
    """Return the assertion in a text; raise InvalidInput that says how to write one."""
    found = ASSERTION.fullmatch(text)
    if found is None:
        signs = " ".join(OPERATORS)
        raise InvalidInput(f"'{text}' is no assertion: write a figure, one of {signs}, and a number, as p95<200ms")
    name, sign, number, unit = found.groups()
    figure = name.lower()
    if figure not in PATHS:
        raise InvalidInput(f"'{text}': there is no figure '{name}'; there are {', '.join(PATHS)}")
    units = ("ms", "s") if figure in TIMES else (None, "%") if figure in SHARES | PERCENTS else (None,)
    if unit not in units:
        wanted = "needs a unit: ms or s" if figure in TIMES else f"has no unit '{unit}'"
        raise InvalidInput(f"'{text}': {name} {wanted}")
    limit = float(number)
    if figure in SHARES and unit is None and limit > 1:
        raise InvalidInput(f"'{text}': {name} is a share, from 0 to 1, or a percentage: write {number}%")
    if unit == "ms":
        limit /= 1000
    elif figure in SHARES and unit == "%":
        limit /= 100
    return Assertion(text.strip(), figure, sign, limit)


def check(report: Report, assertion: Assertion) -> dict[str, Any]:
    """Return an assertion with the figure that is closest to breaking it, and whether it holds."""
    values = [(point, value_at(point, assertion.figure)) for point in report.points]
    broken = [(point, value) for point, value in values if not assertion.holds(value)]
    known = [(point, value) for point, value in broken or values if value is not None]
    nearest = min if assertion.sign in (">", ">=") else max
    point, value = nearest(known, key=lambda each: each[1], default=(None, None))
    return {
        "text": assertion.text,
        "figure": value,
        "shown": "not measured" if value is None else shown(assertion.figure, value),
        "point": point.name if point is not None else None,
        "holds": bool(values) and not broken,
    }


def shown(figure: str, value: float) -> str:
    """Return a figure with its unit."""
    if figure in COUNTS:
        return f"{value:,.0f}"
    return time_text(value) if figure in TIMES else share_text(value) if figure in SHARES else three(value)


def value_at(point: LoadPoint, figure: str) -> float | None:
    """Return a figure of a point: for counts the sum over its runs, else the mean."""
    values = [value for run in point.runs if (value := value_of(run, figure)) is not None]
    if not values:
        return None
    return sum(values) if figure in COUNTS else statistics.fmean(values)


def value_of(run: Run, figure: str) -> float | None:
    """Return a figure of a run; None if it was not measured."""
    value: Any = run
    for name in PATHS[figure].split("."):
        value = getattr(value, name, None)
    return value  # type: ignore[no-any-return]
