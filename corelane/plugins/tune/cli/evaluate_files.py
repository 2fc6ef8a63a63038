"""``corelane eval FILE FILE…``: how good a model is on each of several sets of questions, in one table.

A model that is good on the articles it was made with may be poor on others: the sets stay apart. The last row counts
every question once. Coverage is the share of questions that get an answer of at least such a score, as
``min_precision`` gives it; beside it stands how many of those are exactly right.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from corelane.cli.output import print_line
from corelane.plugins.tune.evaluation import Scored, measure, precision_curve

#: The scores that coverage is given for.
LEAST_SCORES = (0.8, 0.9)

CAPTION = (
    "F1 if any: of answerable questions. none: unanswerable ones that got no answer.\n"
    "≥ 0.8: answered with such a score, and how many of those are exactly right."
)

#: A file's name, its report and its scores.
ScoredFile = tuple[str, dict[str, Any], list[Scored]]


def show_files(files: Sequence[ScoredFile], *, as_json: bool) -> None:
    """Print a row for each file and one for all, or the same as one JSON object."""
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
    """Return what a row says of some results; None where a figure has no questions."""
    found = measure(scored)
    # A question without an answer has none at any score.
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
