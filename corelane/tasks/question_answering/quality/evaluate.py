"""``corelane eval``: SQuAD or XQuAD files through the running service, scored as the official evaluation does.

Files without ``is_impossible`` (v1.1) are asked with ``no_answer`` off, so that every question gets an answer. Exit
code 1 if any answer differs from the text at its offsets, as then the service is broken. With ``--against`` a second
version answers the same questions, and limits decide the exit code.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from corelane.cli.commands import Made
from corelane.cli.output import error_console, print_line
from corelane.cli.service import JsonOption, ModelOption, connect
from corelane.errors import CorelaneError, InvalidInput
from corelane.tasks.question_answering.cli.options import PrecisionOption, ThresholdOption, answer_options
from corelane.tasks.question_answering.quality.comparison import (
    GateLimits,
    GateReport,
    ScoreDifference,
    compare_versions,
)
from corelane.tasks.question_answering.quality.evaluation import (
    Metrics,
    Scored,
    means,
    measure,
    precision_curve,
    score_all,
    split,
)
from corelane.tasks.question_answering.quality.saved import read_answers, save_answers
from corelane.tasks.question_answering.squad import QuestionSet, read_set
from corelane.tasks.question_answering.wire import AnswerResult

if TYPE_CHECKING:
    from corelane.client import Client

#: The scores for which coverage is shown: the share of questions that get an answer with at least this score.
LEAST_SCORES = (0.8, 0.9)

#: Most questions with changed answers that are shown.
SHOWN_CHANGES = 5

LEGEND = (
    "F1 if any: of answerable questions. none: unanswerable ones that got no answer.\n"
    "≥ 0.8: answered with such a score, and how many of those are exactly right."
)


@dataclass(frozen=True, slots=True)
class EvaluatedFile:
    """The answers to one file, scored."""

    name: str
    results: Sequence[AnswerResult]
    scored: Sequence[Scored]
    may_be_unanswerable: bool
    elapsed_s: float


def evaluate(
    client: Annotated["Client", Made(partial(connect, patience_s=60.0))],
    limits: Annotated[GateLimits, Made(GateLimits)],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json[.gz]…", help="Questions in SQuAD's or XQuAD's layout.")
    ],
    model: ModelOption = "default",
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only the first N questions of a file.")] = None,
    threshold: ThresholdOption = None,
    min_precision: PrecisionOption = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="VERSION|FILE", help="Compare with this version, or with answers that --save kept."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep every answer in this file, to compare with later.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure exact match and F1 of the running service on files of questions with known answers."""
    sets = [read_set(file, limit) for file in files]
    options = answer_options(threshold=threshold, min_precision=min_precision)
    if len(files) > 1 and (against is not None or save is not None):
        raise InvalidInput("--against and --save take the answers of one file: give one")
    kept, asked = None, sets[0]
    told = {"no_answer": asked.may_be_unanswerable} | options
    if against is not None and Path(against).is_file():
        kept = read_answers(Path(against), asked.questions, told)
    found = [ask_and_score(client, file.name, each, model, options) for file, each in zip(files, sets, strict=True)]
    version = version_of(client, model) if against is not None or save is not None else model
    if save is not None:
        save_answers(save, asked.questions, found[0].results, version, told)
    if against is None:
        show_files(found, as_json=as_json)
    for each in found:
        check_answers(each.scored)
    if against is None:
        return
    if kept is None:
        old = version_of(client, against), list(_ask(client, asked, against, told))
    else:
        old = f"{kept[0]} ({Path(against).name})", kept[1]
    pass_gate(asked, (version, found[0].results), old, limits, as_json=as_json)


def ask_and_score(
    client: "Client", name: str, asked: QuestionSet, model: str, options: dict[str, Any]
) -> EvaluatedFile:
    """Ask the questions of a file and score them. Its layout gives ``no_answer`` if no option does."""
    started = time.monotonic()
    results = list(_ask(client, asked, model, {"no_answer": asked.may_be_unanswerable} | options))
    elapsed_s = time.monotonic() - started
    return EvaluatedFile(name, results, score_all(asked.questions, results), asked.may_be_unanswerable, elapsed_s)


def _ask(client: "Client", asked: QuestionSet, model: str, options: dict[str, Any]) -> Iterator[AnswerResult]:
    from corelane.client.bulk import run_all

    items = ({"id": each.id[:256], "question": each.question, "context": each.context} for each in asked.questions)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("asking", total=len(asked.questions))
        for result in run_all(client, items, model=model, options=options):
            yield cast(AnswerResult, result)
            progress.advance(task)


def version_of(client: "Client", model: str) -> str:
    """Return the version that a name refers to; the name itself if it refers to several versions, or to none."""
    listed = client.models()
    found = [each["id"] for each in listed if model in (each["id"], each.get("name"), *each.get("aliases", ()))]
    return str(found[0]) if len(found) == 1 else model


def check_answers(scored: Sequence[Scored]) -> None:
    """Print the first failure; raise CorelaneError if an answer differs from the text at its offsets."""
    failed = [each for each in scored if each.failure is not None]
    if failed:
        text = f"{len(failed)} failed; first, question {failed[0].question.id}: {failed[0].failure}"
        error_console().print(text, style="yellow")
    wrong = next((each.question.id for each in scored if each.offsets_wrong), None)
    if wrong is not None:
        count = sum(each.offsets_wrong for each in scored)
        raise CorelaneError(f"{count} answers differ from the text at their offsets; the first is of question {wrong}")


def pass_gate(
    asked: QuestionSet,
    new: tuple[str, Sequence[AnswerResult]],
    old: tuple[str, Sequence[AnswerResult]],
    limits: GateLimits,
    *,
    as_json: bool,
) -> None:
    """Print the comparison of two named versions; raise CorelaneError if a limit is exceeded."""
    if new[0] == old[0]:
        error_console().print(f"both are {new[0]}: this shows only how steady it is", style="yellow")
    report = compare_versions(asked.questions, new, old, limits)
    if as_json:
        print_line(report.as_data())
    else:
        show_comparison(report)
    if report.failing:
        raise CorelaneError(f"{report.new} does not pass against {report.old}: {'; '.join(report.failing)}")


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the metrics of some questions as plain data, with their coverage at each of ``LEAST_SCORES``."""
    # A question without an answer does not count at any score.
    scores = [
        (each.confidence if each.answered and each.confidence is not None else -1.0, each.exact == 1.0)
        for each in scored
    ]
    return asdict(measure(scored)) | {"coverage": [asdict(each) for each in precision_curve(scores, LEAST_SCORES)]}


def by_language(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Return the questions of each language that a file names."""
    languages = sorted({each.question.language for each in scored if each.question.language})
    return {language: [each for each in scored if each.question.language == language] for language in languages}


def report_of(file: EvaluatedFile) -> dict[str, Any]:
    """Return all measurements of a file as plain data."""
    answerable, unanswerable = split(file.scored)
    total = figures(file.scored)
    return total | {
        "no_answer": file.may_be_unanswerable,
        "answerable": asdict(means(answerable)),
        "unanswerable": {"questions": len(unanswerable), "accuracy": means(unanswerable).exact},
        "languages": {name: asdict(means(scored)) for name, scored in by_language(file.scored).items()},
        "elapsed_s": file.elapsed_s,
        "questions_per_s": len(file.scored) / file.elapsed_s if file.elapsed_s > 0 else 0.0,
        "offsets_right": 1 - total["offsets_wrong"] / total["offsets_given"] if total["offsets_given"] else 1.0,
    }


def show_files(files: Sequence[EvaluatedFile], *, as_json: bool) -> None:
    """Print a row for each file and each of its languages, and for several files one of all; or the same as JSON.

    A model that is good on the articles that it was made with may be poor on others, so each file has its own row. The
    last row counts every question once.
    """
    everything = [each for file in files for each in file.scored]
    if as_json:
        reports = [report_of(file) for file in files]
        named = [{"file": file.name} | report for file, report in zip(files, reports, strict=True)]
        print_line(reports[0] if len(files) == 1 else {"files": named, "all": figures(everything)})
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in ("questions", "EM", "F1", "F1 if any", "none", "ECE", *(f"≥ {least:g}" for least in LEAST_SCORES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for file in files:
        table.add_row(file.name.removesuffix(".gz").removesuffix(".json"), *cells(file.scored))
        for language, scored in by_language(file.scored).items():
            table.add_row(f"  {language}", *cells(scored))
    if len(files) > 1:
        table.add_section()
        table.add_row("all", *cells(everything))
    console = Console(highlight=False)
    console.print(table)
    console.print(summary_of(everything, sum(file.elapsed_s for file in files)), LEGEND, sep="\n", soft_wrap=True)


def summary_of(scored: Sequence[Scored], elapsed_s: float) -> str:
    """Return the speed, the answers and the offsets of all questions, in words."""
    found = measure(scored)
    rate = len(scored) / elapsed_s if elapsed_s > 0 else 0.0
    right = "" if found.precision is None else f", {found.precision:.1%} of them exactly right"
    failed = f" · {found.failed:,} failed" if found.failed else ""
    offsets = f"offsets {found.offsets_given - found.offsets_wrong:,} of {found.offsets_given:,} right"
    return f"{rate:,.1f} questions/s · {elapsed_s:.1f} s · {offsets}{failed}\nanswers {found.answered:.1%}{right}"


def cells(scored: Sequence[Scored]) -> list[str]:
    """Return the figures of some questions as a row shows them."""
    row = figures(scored)
    percents = [row["exact"], row["f1"], row["answerable_f1"], row["no_answer_accuracy"]]
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
    console.print(f"same answer {found.agreement:.2%} · {found.new.questions:,} questions")
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
