"""What a page says of a report, before it is HTML. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from corelane.plugins.lab.figures import point_errors
from corelane.plugins.lab.formats import NAMES, figure_text, interval_text, share_text, three, time_text
from corelane.plugins.lab.schema import AnswerCheck, Point, Report
from corelane.plugins.lab.table import answers_text


class Tile(NamedTuple):
    """A figure at the top of the page."""

    name: str
    value: str
    note: str = ""
    mood: str = ""


def tiles(report: Report) -> list[Tile]:
    """Return the figures that a reader looks for first."""
    found = _sweep_tiles(report) if len(report.points) > 1 else _point_tiles(report)
    if beside := report.beside:
        change = beside.during.p95 / beside.before.p95 if beside.before.p95 else None
        note = f"{time_text(beside.before.p95)} before" + (f", ×{change:.2f}" if change else "")
        found.append(Tile("questions' p95 beside a batch", time_text(beside.during.p95), note))
        found.append(Tile("batch, items/s", three(beside.items_per_s), f"{time_text(beside.makespan_s)} in all"))
    checks = _checks(report)
    if checks:
        bad = sum(each.lost + each.twice + (each.differ_from_idle or 0) for each in checks)
        checked = sum(each.checked for each in checks)
        value = f"{bad:,} wrong" if bad else "all right"
        found.append(Tile("answers under load", value, f"of {checked:,}", "bad" if bad else "good"))
    return found


def _point_tiles(report: Report) -> list[Tile]:
    return [
        Tile(NAMES[name], *_with_reach(name, point))
        for point in report.points
        for name in ("p50_s", "p95_s", "p99_s", "items_per_s", "goodput")
        if name in point.figures
    ]


def _sweep_tiles(report: Report) -> list[Tile]:
    found = []
    timed = [point for point in report.points if "p50_s" in point.figures]
    if timed:
        idle = min(timed, key=lambda point: point.figures["items_per_s"].mean)
        found.append(Tile("p50 at the least load", time_text(idle.figures["p50_s"].mean), idle.name))
    if report.knee is not None and "rate_per_s" in report.knee:
        note = f"p95 {time_text(report.knee['p95_s'])} there" if "p95_s" in report.knee else ""
        found.append(Tile("knee", f"{three(report.knee['rate_per_s'])}/s", note))
    if report.found_rate and isinstance(rate := report.found_rate.get("rate_per_s"), int | float):
        found.append(Tile("can be offered", f"{three(rate)}/s", str(report.found_rate.get("objective", ""))))
    if timed:
        peak = max(timed, key=lambda point: point.figures["items_per_s"].mean)
        found.append(Tile("most items/s", three(peak.figures["items_per_s"].mean), peak.name))
    return found


def _with_reach(name: str, point: Point) -> tuple[str, str]:
    figure = point.figures[name]
    reach = interval_text(name, figure).partition(" ±")[2]
    text = share_text(figure.mean) if name == "goodput" else figure_text(name, figure.mean)
    return text, f"±{reach}, {len(figure.values)} runs" if reach else ""


def answer_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield each line on answers with its mood."""
    batch = report.beside.answers if report.beside is not None else None
    for name, checks in (("Questions", _checks(report)), ("Batch", [batch] if batch is not None else [])):
        if checks:
            bad = any(each.lost or each.twice or each.differ_from_idle for each in checks)
            yield answers_text(f"{name}:", checks).plain, "bad" if bad else ""


def error_rows(report: Report) -> Iterator[tuple[str, str, int, str]]:
    """Yield the failures of each point by class, the most frequent first, with one sample each."""
    for point in report.points:
        for error in point_errors(point):
            yield point.name, error.code, error.count, error.sample


def measured_beside(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield each published figure with the measured one of the same name, at the first point that has it."""
    for each in report.published:
        for name, value in each.figures.items():
            measured = next((point.figures[name].mean for point in report.points if name in point.figures), None)
            source = f"{each.source}. {each.note}" if each.note else each.source
            label = f"{each.name}, {NAMES.get(name, name)}"
            yield label, figure_text(name, value), figure_text(name, measured), each.instance, each.date, source


def _checks(report: Report) -> list[AnswerCheck]:
    return [run.answers for point in report.points for run in point.runs if run.answers is not None]
