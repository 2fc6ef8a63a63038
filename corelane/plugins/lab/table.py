"""A report on the terminal: one line a point, and where the time went inside the service beneath.

Text of the service or of a file is shown as it is: it is never read as markup, and cannot control the terminal.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from corelane.domain.plain import plain
from corelane.plugins.lab.compare import Comparison, Difference
from corelane.plugins.lab.figures import point_errors
from corelane.plugins.lab.formats import (
    NAMES,
    PARTS,
    change_text,
    figure_text,
    interval_text,
    ms_interval,
    share_text,
    three,
    time_text,
)
from corelane.plugins.lab.schema import AnswerCheck, Point, Report, Run, Spread

#: Kinds of errors shown a point.
MOST_ERRORS = 5


def render(report: Report) -> RenderableType:
    """Return everything that a reader of a run needs, the reasons of an invalid one last and in red."""
    lines: list[RenderableType] = [head(report)]
    if report.points:
        lines += [Text(), point_table(report.points), Text(), sending_table(report.points)]
    if any(run.server for point in report.points for run in point.runs):
        lines += [Text(), split_table(report.points)]
    lines.append(Text())
    lines += answer_lines(report)
    lines += error_lines(report.points)
    lines += beside_lines(report)
    lines += knee_lines(report)
    lines += published_lines(report)
    lines += assertion_lines(report)
    lines += invalid_lines(report)
    return Group(*lines)


def head(report: Report) -> Text:
    """Return what was run on what."""
    service, machine, workload = report.service, report.machine, report.workload
    cores = f"{len(service.cores)} cores" if service.cores else ""
    facts = [f"Corelane {service.version}", service.model, service.dtype or "", cores, machine.cpu]
    asked = f"{workload.source}: {workload.questions:,} questions, {workload.tokens:,} tokens, {workload.hash[:19]}"
    how = f"{report.way}, heard by {report.hearing}"
    text = Text(plain(report.name), "bold")
    text.append(f"  {plain(' · '.join(filter(None, facts)))}\n{plain(asked)} · {plain(how)}", "dim")
    return text


def point_table(points: Iterable[Point]) -> Table:
    """Return the points, one a line; latency counts from when requests were due."""
    table = _table("load, ms", "p50", "p95", "p99", "items/s", "goodput", "runs", gap=1)
    for point in points:
        table.add_row(
            _name(point),
            *(ms_interval(point.figures.get(name)) for name in ("p50_s", "p95_s", "p99_s")),
            interval_text("items_per_s", point.figures.get("items_per_s")),
            interval_text("goodput", point.figures.get("goodput")),
            Text(f"{len(point.runs)}" if point.is_valid else "invalid", "" if point.is_valid else "bold red"),
        )
    return table


def sending_table(points: Iterable[Point]) -> Table:
    """Return whether the generator kept up, and the latency from the sending of requests."""
    table = _table("sending, ms", "requested", "achieved", "late p95", "p50 sent", "p95 sent", "CPU")
    for point in points:
        runs = point.runs
        requested = [run.generator.requested_per_s for run in runs if run.generator.requested_per_s is not None]
        table.add_row(
            _name(point),
            _of(requested, "{}/s"),
            _of([run.generator.achieved_per_s for run in runs], "{}/s"),
            _ms([run.generator.lateness.p95 for run in runs if run.generator.lateness]),
            _ms([run.latency_sent.p50 for run in runs if run.latency_sent]),
            _ms([run.latency_sent.p95 for run in runs if run.latency_sent]),
            share_text(max((run.generator.cpu_share for run in runs), default=None)),
        )
    return table


def split_table(points: Iterable[Point]) -> Table:
    """Return where the time went inside the service, as means over requests and runs."""
    found = [(point, [run.server for run in point.runs if run.server is not None]) for point in points]
    parts = [name for name in PARTS if any(part(each, name) for _, splits in found for each in splits)]
    table = _table("inside, ms", *parts, "rows", "padding", "busy", gap=1)
    for point, splits in found:
        if not splits:
            continue
        table.add_row(
            _name(point),
            *(_ms([spread.mean for each in splits if (spread := part(each, name))]) for name in parts),
            _of([each.batch_rows.mean for each in splits if each.batch_rows], "{}"),
            share_text(_mean([each.padding_share for each in splits if each.padding_share is not None])),
            share_text(_mean([share for each in splits for share in each.core_busy.values()])),
        )
    return table


def part(split: object, name: str) -> Spread | None:
    """Return a part of the time by its name; None if this version or this service does not tell it."""
    return getattr(split, name, None)


def answer_lines(report: Report) -> list[RenderableType]:
    """Return whether answers were right under load, over all runs."""
    checks = [run.answers for point in report.points for run in point.runs if run.answers is not None]
    return [answers_text("answers", checks)] if checks else []


def answers_text(what: str, checks: list[AnswerCheck]) -> Text:
    """Return what became of answers, in red where one was lost, doubled or wrong."""
    lost, twice = sum(each.lost for each in checks), sum(each.twice for each in checks)
    differ = [each.differ_from_idle for each in checks if each.differ_from_idle is not None]
    parts = [f"{sum(each.checked for each in checks):,} checked", f"{lost:,} lost", f"{twice:,} twice"]
    if differ:
        parts.append(f"{sum(differ):,} unlike the idle service's")
    exact = [each.exact for each in checks if each.exact is not None]
    f1 = [each.f1 for each in checks if each.f1 is not None]
    if exact and f1:
        parts.append(f"EM {_mean(exact):.2f}, F1 {_mean(f1):.2f}")
    bad = bool(lost or twice or sum(differ))
    return Text.assemble((f"{what}  ", "bold"), (", ".join(parts), "red" if bad else "green"))


def error_lines(points: Iterable[Point]) -> list[RenderableType]:
    """Return failures by class, each with one sample, and what was not answered in time."""
    lines: list[RenderableType] = []
    for point in points:
        for error in point_errors(point)[:MOST_ERRORS]:
            text = f"{error.count:,} × {plain(error.code)}  {plain(error.sample)}"
            lines.append(Text.assemble((f"{point.name}  ", "bold"), (text, "yellow")))
    return lines


def beside_lines(report: Report) -> list[RenderableType]:
    """Return how a batch fared, and what questions felt of it."""
    beside = report.beside
    if beside is None:
        return []
    first = f", first result after {time_text(beside.first_result_s)}" if beside.first_result_s is not None else ""
    lines: list[RenderableType] = [
        Text.assemble(
            ("batch  ", "bold"),
            f"{beside.items:,} items in {time_text(beside.makespan_s)}{first}, {three(beside.items_per_s)} items/s",
        ),
        Text.assemble(
            ("questions  ", "bold"),
            "p95 "
            + ", ".join(f"{time_text(getattr(beside, name).p95)} {name}" for name in ("before", "during", "after")),
        ),
    ]
    return lines + ([answers_text("batch's answers", [beside.answers])] if beside.answers else [])


def knee_lines(report: Report) -> list[RenderableType]:
    """Return the knee of a sweep, and the rate that was searched for."""
    lines: list[RenderableType] = []
    if (knee := report.knee) is not None:
        parts = [f"{three(knee['rate_per_s'])} requests/s"] if "rate_per_s" in knee else []
        parts += [f"{NAMES[name]} {figure_text(name, knee[name])}" for name in ("p95_s", "items_per_s") if name in knee]
        lines.append(Text.assemble(("knee  ", "bold"), ", ".join(parts)))
    if stopped := report.extra.get("sweep", {}).get("stopped"):
        lines.append(Text.assemble(("stopped  ", "bold"), plain(stopped)))
    if report.found_rate is not None:
        lines.append(Text.assemble(("found  ", "bold"), plain(found_text(report.found_rate))))
    return lines


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


def published_lines(report: Report) -> list[RenderableType]:
    """Return each published figure with its source, beside which the measured one is read."""
    lines: list[RenderableType] = []
    for each in report.published:
        figures = ", ".join(
            f"{NAMES.get(name, name)} {figure_text(name, value)}" for name, value in each.figures.items()
        )
        text = f"{each.name}: {figures} on {each.instance}, {each.date}, {each.source}"
        lines.append(Text.assemble(("published  ", "bold"), plain(text + (f" ({each.note})" if each.note else ""))))
    return lines


def assertion_lines(report: Report) -> list[RenderableType]:
    """Return each assertion: whether it holds, and the figure."""
    lines: list[RenderableType] = []
    for each in report.assertions:
        mark, style = ("holds", "green") if each.get("holds") else ("does not hold", "bold red")
        lines.append(
            Text.assemble(
                (f"{mark}  ", style), plain(f"{each.get('text')} ({each.get('shown') or each.get('figure')})")
            )
        )
    return lines


def invalid_lines(report: Report) -> list[RenderableType]:
    """Return why a report proves nothing."""
    return [Text(f"invalid: {plain(reason)}", "bold red") for reason in dict.fromkeys(report.invalid)]


def render_comparison(found: Comparison) -> RenderableType:
    """Return how two reports differ."""
    table = _table("load", "figure", "A", "B", "change", "interval", "verdict")
    for each in found.differences:
        table.add_row(
            plain(each.point),
            NAMES.get(each.figure, each.figure),
            figure_text(each.figure, each.a),
            figure_text(each.figure, each.b),
            change_text(each.change, each.unit),
            f"{change_text(each.low, each.unit)} to {change_text(each.high, each.unit)}",
            verdict_text(each),
        )
    lines: list[RenderableType] = [table, Text()]
    lines += [Text(f"B has {plain(each)}", "bold red") for each in found.wrong]
    how = "paired, blocks of A B B A" if found.paired else f"not paired, a drift of {found.drift:.0%} allowed for"
    real = [each for each in found.differences if each.verdict == "real"]
    text = f"{len(real) or 'none'} of {len(found.differences)} figures differ by more than {found.least:.0%} for sure"
    lines.append(Text.assemble((f"{found.verdict}  ", "bold"), f"{text} ({how}, {found.confidence:.2%} intervals)"))
    lines += [Text(f"unlike: {plain(each)}", "yellow") for each in found.unlike]
    lines += [Text(plain(each), "dim") for each in found.notes]
    return Group(*lines)


def verdict_text(each: Difference) -> Text:
    """Return a verdict in its colour."""
    if each.verdict == "noise":
        return Text("noise", "dim")
    return Text(f"real, {each.direction}", "bold red" if each.direction == "worse" else "bold green")


def runs_of(report: Report) -> Iterable[tuple[Point, Run]]:
    """Return each run with its point."""
    return ((point, run) for point in report.points for run in point.runs)


def _table(*columns: str, gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for place, column in enumerate(columns):
        is_text = place == 0 or column in ("figure", "verdict")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True, header_style="dim")
    return table


def _name(point: Point) -> Text:
    return Text(plain(point.name), "" if point.is_valid else "red")


def _ms(values: list[float]) -> str:
    mean = _mean(values)
    return "-" if mean is None else three(1000 * mean)


def _of(values: list[float], pattern: str) -> str:
    mean = _mean(values)
    return "-" if mean is None else pattern.format(three(mean))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
