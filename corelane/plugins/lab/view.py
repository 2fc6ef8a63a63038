"""What is shown of a report: tables and lines, before they are a terminal's, a page's or Markdown. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from corelane.plugins.lab.compare import ReportComparison
from corelane.plugins.lab.figures import point_errors
from corelane.plugins.lab.schema import AnswerCheck, Beside, LoadPoint, Report, Run, ServiceSplit, Spread
from corelane.plugins.lab.texts import (
    NAMES,
    change_text,
    figure_text,
    interval_text,
    ms_interval,
    ms_text,
    number_text,
    share_text,
    three,
    time_text,
)

#: The parts of the time inside the service, in the order of a question's way.
PARTS = ("submit", "wait", "tokenize", "compute", "merge", "commit", "deliver")

#: Kinds of errors shown of a point.
MOST_ERRORS = 5


class Cell(NamedTuple):
    """A cell or a line, and how it is meant: good, bad, warn, quiet or nothing of these."""

    text: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; ``texts`` are the columns of words, the others are of numbers."""

    title: str
    columns: Sequence[str]
    #: Of each cell its text, or a ``Cell``.
    rows: Sequence[Sequence[Any]]
    texts: Sequence[str] = ()


class Line(NamedTuple):
    """A line with a name before it."""

    label: str
    text: str
    mood: str = ""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def part(split: ServiceSplit | None, name: str) -> Spread | None:
    """Return a part of the time inside the service by its name."""
    return getattr(split, name, None)


def over_runs(point: LoadPoint, figure: Callable[[Run], float | None]) -> float | None:
    """Return the mean of a figure over a point's runs."""
    return mean(figure(run) for run in point.runs)


def checks_of(report: Report) -> list[AnswerCheck]:
    """Return the checks of all runs."""
    return [run.answers for point in report.points for run in point.runs if run.answers is not None]


def head_of(report: Report) -> list[str]:
    """Return what was measured on what, then which questions were asked and how."""
    service, machine, workload = report.service, report.machine, report.workload
    cores = f"{len(service.cores)} cores" if service.cores else ""
    facts = [f"Corelane {service.version}", service.model, service.dtype or "", cores, machine.cpu]
    asked = f"{workload.source}: {workload.questions:,} questions, {workload.tokens:,} tokens, {workload.hash[:19]}"
    return [" · ".join(filter(None, facts)), f"{asked} · {report.way}, heard by {report.hearing}"]


def grids(report: Report) -> list[Grid]:
    """Return the tables that a report has rows for."""
    points = report.points
    found = (
        measured(points),
        sending(points),
        inside(points),
        beside(report.beside),
        errors(points),
        assertions(report),
    )
    return [grid for grid in (*found, assertions(report)) if grid.rows]


def measured(points: Sequence[LoadPoint]) -> Grid:
    """Return the points, one a line; latency counts from when requests were due."""
    names = ("load, ms", "p50", "p95", "p99", "mean", "items/s", "goodput", "runs")
    rows = [
        [
            _name(point),
            *(ms_interval(point.figures.get(name)) for name in ("p50_s", "p95_s", "p99_s", "mean_s")),
            interval_text("items_per_s", point.figures.get("items_per_s")),
            interval_text("goodput", point.figures.get("goodput")),
            Cell(f"{len(point.runs)}") if point.is_valid else Cell("invalid", "bad"),
        ]
        for point in points
    ]
    return Grid("Measured", names, rows)


def sending(points: Sequence[LoadPoint]) -> Grid:
    """Return whether the generator kept up, and the latency from the sending of requests."""
    names = ("sending, ms", "requested", "achieved", "late p95", "p50 sent", "p95 sent", "CPU")
    rows = [
        [
            _name(point),
            number_text(over_runs(point, lambda run: run.generator.requested_per_s), "/s"),
            number_text(over_runs(point, lambda run: run.generator.achieved_per_s), "/s"),
            ms_text(over_runs(point, lambda run: getattr(run.generator.lateness, "p95", None))),
            ms_text(over_runs(point, lambda run: getattr(run.latency_sent, "p50", None))),
            ms_text(over_runs(point, lambda run: getattr(run.latency_sent, "p95", None))),
            share_text(max((run.generator.cpu_share for run in point.runs), default=None)),
        ]
        for point in points
    ]
    return Grid("Sending", names, rows)


def inside(points: Sequence[LoadPoint]) -> Grid:
    """Return where the time went inside the service, as means over requests and runs."""
    found = [(point, [run.server for run in point.runs if run.server is not None]) for point in points]
    found = [(point, splits) for point, splits in found if splits]
    parts = [name for name in PARTS if any(part(each, name) for _, splits in found for each in splits)]
    rows = [
        [
            _name(point),
            *(ms_text(mean(getattr(part(each, name), "mean", None) for each in splits)) for name in parts),
            number_text(mean(getattr(each.batch_rows, "mean", None) for each in splits)),
            share_text(mean(each.padding_share for each in splits)),
            share_text(mean(share for each in splits for share in each.core_busy.values())),
        ]
        for point, splits in found
    ]
    return Grid("Inside the service, mean", ("inside, ms", *parts, "rows", "padding", "busy"), rows)


def beside(found: Beside | None) -> Grid:
    """Return the questions before, beside and after a batch."""
    names = ("questions", "p50", "p95", "p99", "max", "count")
    rows = [
        [name, *(time_text(getattr(spread, key)) for key in ("p50", "p95", "p99", "max")), f"{spread.count:,}"]
        for name, spread in questions_of(found)
    ]
    return Grid("A batch beside questions", names, rows)


def questions_of(found: Beside | None) -> list[tuple[str, Spread]]:
    """Return the questions' latencies before, beside and after a batch, if that was measured."""
    return [] if found is None else [("before", found.before), ("beside", found.during), ("after", found.after)]


def errors(points: Sequence[LoadPoint]) -> Grid:
    """Return failures by class, each with one sample, and what was not answered in time."""
    rows = [
        [point.name, Cell(error.code, "warn"), f"{error.count:,}", error.sample]
        for point in points
        for error in point_errors(point)[:MOST_ERRORS]
    ]
    return Grid("Failures", ("failed at", "error", "count", "sample"), rows, ("error", "sample"))


def published(report: Report) -> Grid:
    """Return each published figure with the measured one of the same name, at the first point that has it."""
    rows = []
    for each in report.published:
        for name, value in each.figures.items():
            here = next((point.figures[name].mean for point in report.points if name in point.figures), None)
            source = f"{each.source}. {each.note}" if each.note else each.source
            label = f"{each.name}, {NAMES.get(name, name)}"
            rows.append([label, figure_text(name, value), figure_text(name, here), each.instance, each.date, source])
    names = ("figure", "published", "measured here", "instance", "date", "source")
    return Grid("Published beside measured", names, rows, ("instance", "date", "source"))


def experiment(report: Report) -> Grid:
    """Return the rows of a preset, in its own columns."""
    rows = [row for row in report.extra.get("rows", []) if isinstance(row, Mapping)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Grid("The experiment", names, [[str(row.get(name, "")) for name in names] for row in rows])


def assertions(report: Report) -> Grid:
    """Return each assertion: the figure, and whether it holds."""
    rows = [
        [
            str(each.get("text", "")),
            str(each.get("shown") or each.get("figure")),
            str(each.get("point") or ""),
            Cell("holds", "good") if each.get("holds") else Cell("does not hold", "bad"),
        ]
        for each in report.assertions
    ]
    return Grid("Assertions", ("assertion", "figure", "at", "verdict"), rows, ("verdict",))


def lines(report: Report) -> list[Line]:
    """Return what no table says: the batch, answers, the knee, the rate that was found."""
    found: list[Line] = []
    if (batch := report.beside) is not None:
        first = f", first result after {time_text(batch.first_result_s)}" if batch.first_result_s is not None else ""
        text = f"{batch.items:,} items in {time_text(batch.makespan_s)}{first}, {three(batch.items_per_s)} items/s"
        found.append(Line("batch", text))
    found += answers(report)
    if (knee := report.knee) is not None:
        parts = [f"{three(knee['rate_per_s'])} requests/s"] if "rate_per_s" in knee else []
        parts += [f"{NAMES[name]} {figure_text(name, knee[name])}" for name in ("p95_s", "items_per_s") if name in knee]
        found.append(Line("knee", ", ".join(parts)))
    if stopped := report.extra.get("sweep", {}).get("stopped"):
        found.append(Line("stopped", stopped))
    if report.found_rate is not None:
        found.append(Line("found", found_text(report.found_rate)))
    return found


def answers(report: Report) -> list[Line]:
    """Return what became of answers, in red where one was lost, doubled or wrong."""
    groups = {"answers": checks_of(report)}
    if (batch := report.beside) is not None:
        groups["questions' answers"] = [each for each in (batch.answers,) if each is not None]
        groups["batch's answers"] = [each for each in (batch.batch_answers,) if each is not None]
    return [_answers(label, checks) for label, checks in groups.items() if checks]


def _answers(label: str, checks: Sequence[AnswerCheck]) -> Line:
    lost, twice = sum(each.lost for each in checks), sum(each.twice for each in checks)
    differ = [each.differ_from_idle for each in checks if each.differ_from_idle is not None]
    parts = [f"{sum(each.checked for each in checks):,} checked", f"{lost:,} lost", f"{twice:,} twice"]
    if differ:
        parts.append(f"{sum(differ):,} unlike the idle service's")
    exact, f1 = mean(each.exact for each in checks), mean(each.f1 for each in checks)
    if exact is not None and f1 is not None:
        parts.append(f"EM {exact:.2f}, F1 {f1:.2f}")
    return Line(label, ", ".join(parts), "bad" if lost or twice or sum(differ) else "good")


def wrong(checks: Sequence[AnswerCheck]) -> int:
    """Return how many answers were lost, doubled or unlike the idle service's."""
    return sum(each.lost + each.twice + (each.differ_from_idle or 0) for each in checks)


def found_text(found: Mapping[str, Any]) -> str:
    """Return the answer of a search for a rate, and what broke above it."""
    objective, rate, broke = found.get("objective", ""), found.get("rate_per_s"), found.get("broke")
    text = f"{three(rate)} requests/s hold {objective}" if rate else f"no rate that was tried holds {objective}"
    if rate and found.get("figure_s") is not None:
        text += f": {time_text(found['figure_s'])}, {three(found.get('items_per_s') or 0.0)} items/s"
    if broke:
        text += f"; at {three(broke['rate_per_s'])} {broke['reason']}"
    if found.get("limited_by_generator"):
        text += ". The generator was the limit, not the service"
    return text


def comparison(found: ReportComparison) -> Grid:
    """Return the figures of a comparison."""
    rows = [
        [
            each.point,
            NAMES.get(each.figure, each.figure),
            figure_text(each.figure, each.a),
            figure_text(each.figure, each.b),
            change_text(each.change, each.unit),
            f"{change_text(each.low, each.unit)} to {change_text(each.high, each.unit)}",
            Cell("noise", "quiet")
            if each.verdict == "noise"
            else Cell(f"real, {each.direction}", "bad" if each.direction == "worse" else "good"),
        ]
        for each in found.differences
    ]
    names = ("load", "figure", "A", "B", "change", "interval", "verdict")
    return Grid("Compared", names, rows, ("figure", "verdict"))


def _name(point: LoadPoint) -> Cell:
    return Cell(point.name, "" if point.is_valid else "bad")
