"""``corelane eval``: SQuAD or XQuAD files through the running service, scored as the official evaluation does.

Files without ``is_impossible`` (v1.1) are asked with ``no_answer`` off, so that every question gets an answer. Exit
code 1 if any answer differs from the text at its offsets, as then the service is broken. With ``--against`` a second
version answers the same questions, and limits decide the exit code.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress

from corelane.cli.commands import Made
from corelane.cli.options import PrecisionOption, StrideOption, ThresholdOption, answer_options
from corelane.cli.output import error_console, print_line
from corelane.cli.service import JsonOption, ModelOption, connect
from corelane.errors import CorelaneError, InvalidInput
from corelane.tasks.question_answering.squad import QuestionSet, read_set
from corelane.tasks.question_answering.tune.cli.reports import report_table, show_comparison, show_files
from corelane.tasks.question_answering.tune.comparison import GateLimits, compare_versions
from corelane.tasks.question_answering.tune.evaluation import Scored, means, measure, score_all, split
from corelane.tasks.question_answering.tune.saved import read_answers, save_answers
from corelane.tasks.question_answering.wire import AnswerResult

if TYPE_CHECKING:
    from corelane.client import Client


def evaluate(
    client: Annotated["Client", Made(partial(connect, patience_s=60.0))],
    limits: Annotated[GateLimits, Made(GateLimits)],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json[.gz]…", help="Questions in SQuAD's or XQuAD's layout.")
    ],
    model: ModelOption = "default",
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only the first N questions of a file.")] = None,
    doc_stride: StrideOption = None,
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
    options = answer_options(doc_stride=doc_stride, threshold=threshold, min_precision=min_precision)
    if len(files) > 1:
        if against is not None or save is not None:
            raise InvalidInput("--against and --save take the answers of one file: give one")
        found = [ask_and_score(client, asked, model, options)[:2] for asked in sets]
        show_files([(file.name, *each) for file, each in zip(files, found, strict=True)], as_json=as_json)
        for report, scored in found:
            _complain(report, scored)
        return
    [asked], [file] = sets, files
    options = {"no_answer": asked.may_be_unanswerable} | options
    kept = None
    if against is not None and Path(against).is_file():
        kept = read_answers(Path(against), asked.questions, options)
    report, scored, results = ask_and_score(client, asked, model, options)
    version = version_of(client, model)
    if save is not None:
        save_answers(save, asked.questions, results, version, options)
    if against is None and as_json:
        print_line(report)
    elif against is None:
        Console().print(report_table(file.name, report))
    _complain(report, scored)
    if against is None:
        return
    if kept is None:
        old = (version_of(client, against), list(_ask(client, asked, against, options)))
    else:
        old = (f"{kept[0]} ({Path(against).name})", kept[1])
    pass_gate(asked, (version, results), old, limits, as_json=as_json)


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


def ask_and_score(
    client: "Client", asked: QuestionSet, model: str, options: dict[str, Any]
) -> tuple[dict[str, Any], list[Scored], list[AnswerResult]]:
    """Ask the questions; return report, scores and results in order. The set gives ``no_answer`` if no option does."""
    started = time.monotonic()
    results = list(_ask(client, asked, model, {"no_answer": asked.may_be_unanswerable} | options))
    elapsed_s = time.monotonic() - started
    scored = score_all(asked.questions, results)
    return make_report(asked, scored, elapsed_s), scored, results


def version_of(client: "Client", model: str) -> str:
    """Return the version that a name refers to; the name itself if it refers to several versions, or to none."""
    listed = client.models()
    found = [each["id"] for each in listed if model in (each["id"], each.get("name"), *each.get("aliases", ()))]
    return str(found[0]) if len(found) == 1 else model


def _ask(client: "Client", asked: QuestionSet, model: str, options: dict[str, Any]) -> Iterator[AnswerResult]:
    from corelane.client.bulk import answer_all

    items = ({"id": each.id[:256], "question": each.question, "context": each.context} for each in asked.questions)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("asking", total=len(asked.questions))
        results = answer_all(client, items, model=model, options=options)
        for result in results:
            yield cast(AnswerResult, result)
            progress.advance(task)


def make_report(asked: QuestionSet, scored: list[Scored], elapsed_s: float) -> dict[str, Any]:
    """Return all measurements as plain data."""
    answerable, unanswerable = split(scored)
    languages = sorted({each.question.language for each in scored if each.question.language})
    total = measure(scored)
    return {
        **asdict(total),
        "no_answer": asked.may_be_unanswerable,
        "answerable": asdict(means(answerable)),
        "unanswerable": {"questions": len(unanswerable), "accuracy": means(unanswerable).exact},
        "languages": {
            language: asdict(means([each for each in scored if each.question.language == language]))
            for language in languages
        },
        "elapsed_s": elapsed_s,
        "questions_per_s": len(scored) / elapsed_s if elapsed_s > 0 else 0.0,
        "offsets_right": 1 - total.offsets_wrong / total.offsets_given if total.offsets_given else 1.0,
    }


def _complain(report: dict[str, Any], scored: list[Scored]) -> None:
    """Print the first failure; raise CorelaneError if an answer differs from the text at its offsets."""
    failed = next((each for each in scored if each.failure is not None), None)
    if failed is not None:
        text = f"{report['failed']} failed; first, question {failed.question.id}: {failed.failure}"
        error_console().print(text, style="yellow")
    wrong = next((each.question.id for each in scored if each.offsets_wrong), None)
    if wrong is not None:
        raise CorelaneError(
            f"{report['offsets_wrong']} answers differ from the text at their offsets; the first is of question {wrong}"
        )
