"""What a run must show: ``--assert "p95<200ms"``. Pure.

Times and rates are means over the repeats, counts are sums. An assertion holds if it holds at every point. One about a
figure that was not measured does not hold.
"""

import operator
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from corelane.errors import InvalidInput
from corelane.plugins.lab.schema import LoadPoint, Report, Run
from corelane.plugins.lab.texts import share_text, three, time_text

Kind = Literal["time", "share", "percent", "rate", "count"]

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

ASSERTION = re.compile(r"\s*([A-Za-z_][\w/]*)\s*(<=|>=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|%)?\s*")

#: Names that mean the same.
SAME = {
    "latency": "mean",
    "em": "exact",
    "items/s": "items_per_s",
    "requests/s": "requests_per_s",
    "tokens/s": "tokens_per_s",
    "failed": "errors",
    "wrong": "differ_from_idle",
}

#: Every figure that can be asserted, and what its value is.
KINDS: dict[str, Kind] = {
    **{f"{name}{end}": "time" for name in ("p50", "p90", "p95", "p99", "mean", "max") for end in ("", "_sent")},
    **{f"{name}_{figure}": "time" for name in ("first", "lateness") for figure in ("p50", "p95", "p99", "max")},
    **dict.fromkeys(("items_per_s", "requests_per_s", "tokens_per_s"), "rate"),
    **dict.fromkeys(("goodput", "achieved", "padding", "core_busy"), "share"),
    **dict.fromkeys(("errors", "refused", "unfinished", "lost", "twice", "differ_from_idle"), "count"),
    "exact": "percent",
    "f1": "percent",
}

#: The units that each kind of value may have; a time must have one.
UNITS: dict[Kind, tuple[str | None, ...]] = {
    "time": ("ms", "s"),
    "share": (None, "%"),
    "percent": (None, "%"),
    "rate": (None,),
    "count": (None,),
}


@dataclass(frozen=True, slots=True)
class Assertion:
    """A figure, an operator and a limit, in seconds or as a share."""

    text: str
    figure: str
    sign: str
    limit: float

    def holds(self, value: float | None) -> bool:
        """Return whether a value meets it."""
        return value is not None and OPERATORS[self.sign](value, self.limit)


def parse_assertion(text: str) -> Assertion:
    """Return the assertion that a text states; raise InvalidInput saying how to write it."""
    found = ASSERTION.fullmatch(text)
    if found is None:
        signs = " ".join(OPERATORS)
        raise InvalidInput(f"'{text}' is no assertion: write a figure, one of {signs}, and a number, as p95<200ms")
    name, sign, number, unit = found.groups()
    figure = SAME.get(name.lower(), name.lower().removesuffix("_s") if name.lower().endswith("_s") else name.lower())
    figure = f"{figure}_s" if f"{figure}_s" in KINDS else figure
    if figure not in KINDS:
        near = get_close_matches(figure, [*KINDS, *SAME], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KINDS)}"
        raise InvalidInput(f"'{text}': there is no figure '{name}'; {hint}")
    kind = KINDS[figure]
    if unit not in UNITS[kind]:
        wanted = "needs a unit: ms or s" if kind == "time" else f"has no unit '{unit}'"
        raise InvalidInput(f"'{text}': {name} {wanted}")
    scale = {"ms": 1e-3, "%": 1e-2 if kind == "share" else 1.0}.get(unit or "", 1.0)
    if kind == "share" and unit is None and float(number) > 1:
        raise InvalidInput(f"'{text}': {name} is a share, from 0 to 1, or a percentage: write {number}%")
    return Assertion(text.strip(), figure, sign, float(number) * scale)


def parse_assertions(texts: Iterable[str]) -> list[Assertion]:
    """Return all assertions; raise InvalidInput for the first that is mistyped, before anything is run."""
    return [parse_assertion(text) for text in texts]


def check(report: Report, assertions: Iterable[Assertion]) -> list[dict[str, Any]]:
    """Return each assertion with the figure that is nearest to breaking it, and whether it holds."""
    return [_check(report, each) for each in assertions]


def _check(report: Report, assertion: Assertion) -> dict[str, Any]:
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
    kind = KINDS[figure]
    if kind == "count":
        return f"{value:,.0f}"
    return {"time": time_text, "share": share_text}.get(kind, three)(value)


def value_at(point: LoadPoint, figure: str) -> float | None:
    """Return a figure of a point: the sum over its runs of a count, else the mean."""
    values = [value for run in point.runs if (value := value_of(run, figure)) is not None]
    if not values:
        return None
    return sum(values) if KINDS[figure] == "count" else statistics.fmean(values)


def value_of(run: Run, figure: str) -> float | None:
    """Return a figure of a run; None if it was not measured."""
    server, generator = run.server, run.generator
    if figure == "achieved":
        return generator.achieved_per_s / generator.requested_per_s if generator.requested_per_s else None
    if figure == "core_busy":
        return statistics.fmean(server.core_busy.values()) if server is not None and server.core_busy else None
    if figure == "errors":
        return float(run.failed)
    if hasattr(run.answers, figure):
        return getattr(run.answers, figure)  # type: ignore[no-any-return]
    if isinstance(found := getattr(run, figure, None), int | float):
        return float(found)
    name, _, rest = figure.partition("_")
    owners: dict[str, tuple[object, str]] = {
        "goodput": (run.goodput, "share"),
        "padding": (server, "padding_share"),
        "first": (run.first, rest),
        "lateness": (generator.lateness, rest),
    }
    owner, part = owners.get(name, (run.latency_sent if rest == "sent" else run.latency, name))
    return getattr(owner, part, None)
