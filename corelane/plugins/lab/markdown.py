"""A report as rows of a Markdown table, as docs/performance.md has them. Pure."""

from collections.abc import Iterable, Iterator

from corelane.domain.plain import plain
from corelane.plugins.lab.formats import interval_text, three, time_text
from corelane.plugins.lab.schema import Point, Report

#: The columns of a row where questions were asked beside a batch.
BESIDE_COLUMNS = ("run", "questions", "p50", "p95", "p99", "count", "batch")

#: The columns of a row.
COLUMNS = ("run", "load", "p50", "p95", "p99", "mean", "items/s", "goodput", "late p95", "answers", "valid")


def markdown(report: Report, *, with_head: bool = True) -> str:
    """Return a row for each point; the head is left out where rows are added to a table."""
    found = [cells(report, point) for point in report.points] or list(beside_cells(report))
    columns = COLUMNS if report.points else BESIDE_COLUMNS
    head = [_row(columns), _row("---" for _ in columns)] if with_head and found else []
    return "".join(f"{line}\n" for line in [*head, *map(_row, found)])


def beside_cells(report: Report) -> Iterator[list[str]]:
    """Yield the cells of the questions before, beside and after a batch, if that was measured."""
    if (beside := report.beside) is None:
        return
    batch = f"{beside.items:,} items in {time_text(beside.makespan_s)}, {three(beside.items_per_s)} items/s"
    for part, found in (("before", beside.before), ("beside", beside.during), ("after", beside.after)):
        times = (time_text(each) for each in (found.p50, found.p95, found.p99))
        yield [report.name, part, *times, f"{found.count:,}", batch if part == "beside" else ""]


def cells(report: Report, point: Point) -> list[str]:
    """Return the cells of a point."""
    late = max((run.generator.lateness.p95 for run in point.runs if run.generator.lateness), default=None)
    return [
        report.name,
        point.name,
        *(
            interval_text(name, point.figures.get(name))
            for name in ("p50_s", "p95_s", "p99_s", "mean_s", "items_per_s")
        ),
        interval_text("goodput", point.figures.get("goodput")),
        time_text(late),
        answers_cell(point),
        "yes" if point.is_valid else "no: " + next(run.invalid[0] for run in point.runs if run.invalid),
    ]


def answers_cell(point: Point) -> str:
    """Return what became of a point's answers, in a word."""
    checks = [run.answers for run in point.runs if run.answers is not None]
    if not checks:
        return "-"
    bad = sum(each.lost + each.twice + (each.differ_from_idle or 0) for each in checks)
    f1 = [each.f1 for each in checks if each.f1 is not None]
    text = f"{bad:,} wrong" if bad else "right"
    return text + (f", F1 {sum(f1) / len(f1):.2f}" if f1 else "")


def escape(text: str) -> str:
    """Return text that stays in its cell and is not read as markup."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in "\\`*_[]|" else each for each in text)


def _row(given: Iterable[str]) -> str:
    return "| " + " | ".join(escape(each) for each in given) + " |"
