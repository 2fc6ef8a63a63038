"""The output of ``corelane eval``: the scores of one file, of several in one table, or of two versions side by side.

A model that is good on the articles that it was made with may be poor on others, so each set has its own row. The last
row counts every question once. Coverage is the share of questions that get an answer with at least a given score, as
``min_precision`` selects them. Beside it is the share of these answers that are right.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from corelane.cli.output import print_line
from corelane.tasks.question_answering.tune.comparison import GateReport, ScoreDifference
from corelane.tasks.question_answering.tune.evaluation import Metrics, Scored, measure, precision_curve

#: Most questions with changed answers that are shown.
SHOWN_CHANGES = 5

#: The scores for which coverage is shown.
LEAST_SCORES = (0.8, 0.9)

CAPTION = (
    "F1 if any: of answerable questions. none: unanswerable ones that got no answer.\n"
    "≥ 0.8: answered with such a score, and how many of those are exactly right."
)

#: A file's name, its report and its scores.
ScoredFile = tuple[str, dict[str, Any], list[Scored]]


def report_table(title: str, report: dict[str, Any]) -> Table:
    """Return the scores of one file."""
    table = Table(title=title, title_justify="left", caption=_caption(report), caption_justify="left")
    table.add_column("")
    for heading in ("questions", "EM", "F1", "offsets right"):
        table.add_column(heading, justify="right")
    rows = {"all": report}
    if report["unanswerable"]["questions"]:
        rows["answerable"] = report["answerable"]
    for name, scores in (rows | report["languages"]).items():
        right = f"{scores['offsets_given'] - scores['offsets_wrong']:,} of {scores['offsets_given']:,}"
        table.add_row(name, f"{scores['questions']:,}", f"{scores['exact']:.2f}", f"{scores['f1']:.2f}", right)
    if left := report["unanswerable"]["questions"]:
        accuracy = f"{report['unanswerable']['accuracy']:.2f}"
        table.add_row("unanswerable", f"{left:,}", accuracy, accuracy, "")
    return table


def _caption(report: dict[str, Any]) -> str:
    failed = f" · {report['failed']:,} failed" if report["failed"] else ""
    rate = f"{report['questions_per_s']:,.1f} questions/s · {report['elapsed_s']:.1f} s"
    right = "" if report["precision"] is None else f", {report['precision']:.1%} of them exactly right"
    given = f"answers {report['answered']:.1%}{right}"
    return f"{rate} · offsets {report['offsets_right']:.2%} right{failed}\n{given}\nECE {report['ece']:.3f}"


def show_files(files: Sequence[ScoredFile], *, as_json: bool) -> None:
    """Print a row for each file and one for all files, or the same as one JSON object."""
    total = figures([each for _, _, scored in files for each in scored])
    if as_json:
        rows = [{"file": name} | report | figures(scored) for name, report, scored in files]
        print_line({"files": rows, "all": total})
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, caption=CAPTION, caption_justify="left")
    table.add_column("", overflow="fold")
    scores = [f"≥ {least:g}" for least in LEAST_SCORES]
    for heading in ("questions", "EM", "F1", "F1 if any", "none", "ECE", *scores):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, _, scored in files:
        table.add_row(name.removesuffix(".gz").removesuffix(".json"), *cells(figures(scored)))
    table.add_section()
    table.add_row("all", *cells(total))
    Console().print(table)


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the figures of a row; None if a figure has no questions."""
    found = measure(scored)
    # A question without an answer does not count at any score.
    scores = [
        (each.confidence if each.answered and each.confidence is not None else -1.0, each.exact == 1.0)
        for each in scored
    ]
    return asdict(found) | {
        "unanswerable_accuracy": found.no_answer_accuracy,
        "coverage": [asdict(point) for point in precision_curve(scores, LEAST_SCORES)],
    }


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row's figures as the table shows them."""
    percents = [row["exact"], row["f1"], row["answerable_f1"], row["unanswerable_accuracy"]]
    shown = ["" if each is None else f"{each:.1f}" for each in percents]
    return [f"{row['questions']:,}", *shown, f"{row['ece']:.3f}", *map(_covered, row["coverage"])]


def _covered(point: dict[str, Any]) -> str:
    right = "" if point["precision"] is None else f" ({point['precision']:.0%})"
    return f"{point['coverage']:.0%}{right}"


def show_comparison(report: GateReport) -> None:
    """Print both versions side by side, then every limit."""
    console, found = Console(highlight=False), report.comparison
    table = Table(title=f"{report.new} against {report.old}", title_justify="left")
    for heading in ("", "new", "old", "difference", "95 % interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("EM", f"{found.new.exact:.2f}", f"{found.old.exact:.2f}", *_difference(found.exact))
    table.add_row("F1", f"{found.new.f1:.2f}", f"{found.old.f1:.2f}", *_difference(found.f1))
    for row in _rows(found.new, found.old):
        table.add_row(*row)
    console.print(table)
    console.print(
        f"same answer {found.agreement:.2%} · score drift {found.score_drift:.3f} · "
        f"mean score {found.mean_score_shift:+.3f} · {found.new.questions:,} questions"
    )
    for each in report.checks:
        sign = "[green]✓[/]" if each.holds else "[red]✗[/]"
        bound = "at least" if each.name == "agreement" else "at most"
        console.print(f"{sign} {each.name}: {each.figure:.3g} ({bound} {each.limit:.3g})")
    for change in report.changed[:SHOWN_CHANGES]:
        # A question's text is not read as markup.
        text = f"{change['change']}: {change['question']} · new {change['new']!r} · old {change['old']!r}"
        console.print(text, markup=False, soft_wrap=True)


def _rows(new: Metrics, old: Metrics) -> list[tuple[str, str, str]]:
    rows = [("F1, answerable", new.answerable_f1, old.answerable_f1)]
    rows.append(("no answer right", new.no_answer_accuracy, old.no_answer_accuracy))
    for a, b in zip(new.operating_points, old.operating_points, strict=True):
        rows.append((f"F1 at {a.no_answer_accuracy:.0%} no answer", a.f1, b.f1))
    shown = [(name, f"{a:.2f}", f"{b:.2f}") for name, a, b in rows if a is not None and b is not None]
    return [*shown, ("ECE", f"{new.ece:.3f}", f"{old.ece:.3f}"), ("failed", f"{new.failed:,}", f"{old.failed:,}")]


def _difference(found: ScoreDifference) -> tuple[str, str]:
    return f"{found.by:+.2f}", f"{found.low:+.2f} to {found.high:+.2f}"
