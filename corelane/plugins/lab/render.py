"""Render a report for a terminal, as an HTML page, as Markdown and as CSV. All are made from the JSON report.

Text from the service or a file is shown as it is: it is not read as markup and cannot control the terminal.
"""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from corelane.cli.output import plain
from corelane.plugins.lab.compare import FigureDifference, ReportComparison
from corelane.plugins.lab.figures import point_errors, run_figures
from corelane.plugins.lab.schema import Beside, LoadPoint, Report, ResultCheck
from corelane.plugins.lab.split import PARTS
from corelane.plugins.lab.texts import NAMES, figure_text, interval_text, ms_text, share_text, three, time_text

GOOD, BAD = "green", "bold red"

#: Kinds of errors shown of a point.
MOST_ERRORS = 5

#: Width of the page, in columns.
PAGE_CHARS = 160

#: A spreadsheet reads a cell that begins with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

#: The fields of a run that are not single values.
NESTED = {
    *("generator", "latency", "latency_sent", "first", "goodput", "server", "results"),
    *("errors", "timeline", "latencies", "invalid"),
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of words and numbers. The columns in ``words`` and the first column are words."""

    columns: Sequence[str]
    rows: list[list[str | Text]] = field(default_factory=list)
    words: Sequence[str] = ()

    def table(self) -> Table:
        """Return the table for a terminal."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for place, name in enumerate(self.columns):
            is_word = place == 0 or name in self.words
            table.add_column(name, justify="left" if is_word else "right", no_wrap=True, header_style="dim")
        for row in self.rows:
            table.add_row(*(Text(plain(str(each)), each.style if isinstance(each, Text) else "") for each in row))
        return table


def terminal(report: Report) -> RenderableType:
    """Return the whole report for a reader. If a run is invalid, the reasons come last and in red."""
    service, workload = report.service, report.workload
    what = [f"Corelane {service.version}", service.model, service.dtype or "", f"{len(service.cores)} cores"]
    asked = f"{workload.source}: {workload.items:,} items, {workload.tokens:,} tokens, {workload.hash[:19]}"
    head = f"{report.name}  {' · '.join(filter(None, [*what, report.machine.cpu]))}"
    shown: list[RenderableType] = [Text(plain(head)), Text(plain(f"{asked} · {report.way}, heard by {report.hearing}"))]
    for grid in grids(report):
        shown += [Text(), grid.table()]
    shown += [Text(), *sentences(report)]
    shown += [Text(f"invalid: {plain(reason)}", BAD) for reason in dict.fromkeys(report.invalid)]
    return Group(*shown)


def page(report: Report) -> str:
    """Return what a terminal shows as one page of HTML, with the table of a preset."""
    console = Console(record=True, file=io.StringIO(), width=PAGE_CHARS, markup=False, highlight=False, emoji=False)
    console.print(terminal(report))
    if "table" in report.extra:
        console.print("\n".join(map(plain, report.extra["table"].splitlines())), soft_wrap=True)
    return console.export_html(inline_styles=True)


def comparison(found: ReportComparison) -> RenderableType:
    """Return how two reports differ."""
    how = "paired, blocks of A B B A" if found.paired else f"not paired, a drift of {found.drift:.0%} allowed for"
    real = sum(each.verdict == "real" for each in found.differences)
    text = f"{real or 'none'} of {len(found.differences)} figures differ by more than {found.least:.0%} for sure"
    columns = ("load", "figure", "A", "B", "change", "interval", "verdict")
    return Group(
        Grid(columns, [_difference(each) for each in found.differences], ("figure", "verdict")).table(),
        Text(),
        *(Text(f"B has {plain(each)}", BAD) for each in found.wrong),
        _line(found.verdict, f"{text} ({how}, {found.confidence:.2%} intervals)"),
        *(Text(f"unlike: {plain(each)}", "yellow") for each in found.unlike),
        *(Text(plain(each), "dim") for each in found.notes),
    )


def _difference(found: FigureDifference) -> list[str | Text]:
    change, low, high = (
        f"{100 * value:+.1f} %" if found.unit == "share" else f"{value:+.2f}"
        for value in (found.change, found.low, found.high)
    )
    verdict = Text("noise", "dim")
    if found.verdict == "real":
        verdict = Text(f"real, {found.direction}", BAD if found.direction == "worse" else GOOD)
    sides = (figure_text(found.figure, value) for value in (found.a, found.b))
    return [found.point, NAMES.get(found.figure, found.figure), *sides, change, f"{low} to {high}", verdict]


def grids(report: Report) -> list[Grid]:
    """Return the tables that a report has rows for."""
    points = report.points
    found = (measured(points), sending(points), inside(points), beside(report.beside), errors(points))
    return [grid for grid in (*found, assertions(report)) if grid.rows]


def measured(points: Sequence[LoadPoint]) -> Grid:
    """Return the points, one a line; latency counts from when requests were due."""
    grid = Grid(("load, ms", "p50", "p95", "p99", "mean", "items/s", "goodput %", "runs"))
    for point in points:
        found = point.figures.get
        times = (interval_text(found(f"{name}_s"), 1000) for name in ("p50", "p95", "p99", "mean"))
        runs = Text(f"{len(point.runs)}") if point.is_valid else Text("invalid", BAD)
        rates = interval_text(found("items_per_s")), interval_text(found("goodput"), 100)
        grid.rows.append([_name(point), *times, *rates, runs])
    return grid


def sending(points: Sequence[LoadPoint]) -> Grid:
    """Return whether the generator kept up, and the latency from when requests were sent."""
    grid = Grid(("sending, ms", "requested/s", "achieved/s", "late p95", "p50 sent", "p95 sent", "CPU"))
    for point in points:
        generators = [run.generator for run in point.runs]
        rates = (_mean(getattr(each, name) for each in generators) for name in ("requested_per_s", "achieved_per_s"))
        times = (
            _mean(getattr(each.lateness, "p95", None) for each in generators),
            *(_mean(getattr(run.latency_sent, name, None) for run in point.runs) for name in ("p50", "p95")),
        )
        cpu = share_text(max((each.cpu_share for each in generators), default=None))
        grid.rows.append([_name(point), *map(three, rates), *map(ms_text, times), cpu])
    return grid


def inside(points: Sequence[LoadPoint]) -> Grid:
    """Return where the time went inside the service, as means over requests and runs."""
    splits = {point.name: [run.server for run in point.runs if run.server is not None] for point in points}
    parts = [name for name in PARTS if any(getattr(each, name) for found in splits.values() for each in found)]
    parts = [name for name in parts if name not in ("job", "batch_rows")]
    grid = Grid(("inside, ms", *parts, "rows", "padding", "busy"))
    for point in points:
        if not (found := splits[point.name]):
            continue
        means = {name: _mean(getattr(getattr(each, name), "mean", None) for each in found) for name in PARTS}
        padding = _mean(each.padding_share for each in found)
        busy = _mean(each.busy for each in found)
        times = (ms_text(means[name]) for name in parts)
        grid.rows.append([_name(point), *times, three(means["batch_rows"]), share_text(padding), share_text(busy)])
    return grid


def beside(found: Beside | None) -> Grid:
    """Return the requests before, beside and after a batch."""
    grid = Grid(("requests", "p50", "p95", "p99", "max", "count"))
    for name, spread in found.parts.items() if found is not None else ():
        times = (time_text(getattr(spread, key)) for key in ("p50", "p95", "p99", "max"))
        grid.rows.append([name, *times, f"{spread.count:,}"])
    return grid


def errors(points: Sequence[LoadPoint]) -> Grid:
    """Return failures by class, each with one sample, and what was not answered in time."""
    grid = Grid(("failed at", "error", "count", "sample"), words=("error", "sample"))
    for point in points:
        for error in point_errors(point)[:MOST_ERRORS]:
            grid.rows.append([point.name, Text(error.code, "yellow"), f"{error.count:,}", error.sample])
    return grid


def assertions(report: Report) -> Grid:
    """Return each assertion: the figure, and whether it holds."""
    grid = Grid(("assertion", "figure", "at", "verdict"), words=("verdict",))
    for each in report.assertions:
        verdict = Text("holds", GOOD) if each["holds"] else Text("does not hold", BAD)
        grid.rows.append([each["text"], each["shown"], each["point"] or "", verdict])
    return grid


def sentences(report: Report) -> list[Text]:
    """Return sentences on facts that are in no table: the batch, results, the knee, the rate that was found."""
    found = []
    if (batch := report.beside) is not None:
        first = f", first result after {time_text(batch.first_result_s)}" if batch.first_result_s is not None else ""
        text = f"{batch.items:,} items in {time_text(batch.makespan_s)}{first}, {three(batch.items_per_s)} items/s"
        found.append(_line("batch", text))
    for label, checks in report.checks.items():
        found += [results_line(label, checks)] if checks else []
    if (knee := report.knee) is not None:
        rate, p95, items = three(knee["rate_per_s"]), time_text(knee["p95_s"]), three(knee["items_per_s"])
        found.append(_line("knee", f"{rate} requests/s, p95 {p95}, {items} items/s"))
    if stopped := report.extra.get("sweep", {}).get("stopped"):
        found.append(_line("stopped", stopped))
    if report.found_rate is not None:
        found.append(_line("found", found_text(report.found_rate)))
    return found


def results_line(label: str, checks: Sequence[ResultCheck]) -> Text:
    """Return the outcome of the checks, in red if any result was lost, doubled or wrong."""
    lost, twice = sum(each.lost for each in checks), sum(each.twice for each in checks)
    differ = [each.differ_from_idle for each in checks if each.differ_from_idle is not None]
    text = f"{sum(each.checked for each in checks):,} checked, {lost:,} lost, {twice:,} twice"
    if differ:
        text += f", {sum(differ):,} unlike the idle service's"
    exact, f1 = _mean(each.exact for each in checks), _mean(each.f1 for each in checks)
    if exact is not None and f1 is not None:
        text += f", EM {exact:.2f}, F1 {f1:.2f}"
    return _line(label, text, BAD if any(check.is_wrong for check in checks) else GOOD)


def found_text(found: Mapping[str, Any]) -> str:
    """Return the result of a search for a rate, and what failed above it."""
    rate, broke = found["rate_per_s"], found["broke"]
    text = f"no rate that was tried holds {found['objective']}"
    if rate:
        text = f"{three(rate)} requests/s hold {found['objective']}: {time_text(found['figure_s'])}"
        text += f", {three(found['items_per_s'])} items/s"
    if broke:
        text += f"; at {three(broke['rate_per_s'])} {broke['reason']}"
    if found["limited_by_generator"]:
        text += ". The generator was the limit, not the service"
    return text


def markdown(report: Report) -> str:
    """Return a row of Markdown for each point; for requests beside a batch, a row for each part."""
    grid = measured(report.points) if report.points else beside(report.beside)
    return markdown_table(grid.columns, [list(map(str, row)) for row in grid.rows]) if grid.rows else ""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = (" | ".join(map(escape, row)) for row in (columns, *rows))
    head, *rest = (f"| {line} |\n" for line in lines)
    return "".join([head, "| " + " | ".join("---" for _ in columns) + " |\n", *rest])


def escape(text: str) -> str:
    """Return text that stays in its cell and is not read as markup."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in "\\`*_[]|" else each for each in text)


def to_csv(report: Report) -> str:
    """Return a line for each run, or each part beside a batch; what looks like a formula gets an apostrophe."""
    rows = [
        {"run": report.name, "point": point.name, **run.model_dump(exclude=NESTED), **run_figures(run)}
        | {"invalid": "; ".join(run.invalid)}
        for point in report.points
        for run in point.runs
    ]
    if not rows and report.beside is not None:
        parts = report.beside.parts
        rows = [{"run": report.name, "requests": name, **spread.model_dump()} for name, spread in parts.items()]
    out = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row) or ["run"]
    writer = csv.DictWriter(out, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"'{cell}" if str(cell).startswith(FORMULA) else cell for name, cell in row.items()} for row in rows
    )
    return out.getvalue()


def _line(label: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{label}  ", "bold"), (plain(text), style))


def _name(point: LoadPoint) -> Text:
    return Text(point.name, "" if point.is_valid else BAD)


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
