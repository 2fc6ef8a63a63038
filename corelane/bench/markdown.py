"""A report as rows of a Markdown table, as docs/performance.md has them. Pure."""

from collections.abc import Iterable

from corelane.bench.formats import interval_text, time_text
from corelane.bench.schema import Point, Report
from corelane.domain.plain import plain

#: The columns of a row.
COLUMNS = ("run", "load", "p50", "p95", "p99", "mean", "items/s", "goodput", "late p95", "answers", "valid")


def markdown(report: Report, *, with_head: bool = True) -> str:
    """Return a row for each point; the head is left out where rows are added to a table."""
    rows = [_row(cells(report, point)) for point in report.points]
    if with_head:
        rows = [_row(COLUMNS), _row("---" for _ in COLUMNS), *rows]
    return "\n".join(rows) + "\n"


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
