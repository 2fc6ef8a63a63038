"""``corelane batch``: questions, one JSON object a line or a CSV, answered into results in the same order.

How a run goes, is interrupted and resumed is at ``lines_run``.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.item_lines import JSON_LINES, LineFormat
from corelane.cli.lines_run import STANDARD, LinesRun, as_url
from corelane.cli.options import JobsOption, OutputOption, OverwriteOption, PriorityOption, QuietOption
from corelane.cli.output import error_console
from corelane.cli.service import ModelOption, UrlOption
from corelane.domain.jobs import DEFAULT_TASK, Priority
from corelane.errors import InvalidInput
from corelane.tasks.question_answering.cli.options import NAMES, AnswerOptions
from corelane.tasks.question_answering.cli.table import CSV
from corelane.tasks.registry import TASKS

if TYPE_CHECKING:
    from corelane.client.endpoints import JobParts


def batch(
    options: AnswerOptions,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUESTIONS",
            help="Lines of JSON with question, context and id, or a .csv with these columns; - is "
            "standard input; s3://… or https://… is read by the service.",
        ),
    ] = STANDARD,
    output: OutputOption = STANDARD,
    url: UrlOption = None,
    model: ModelOption = "default",
    priority: PriorityOption = Priority.NORMAL,
    jobs: JobsOption = 4,
    overwrite: OverwriteOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Read and write CSV with a header, whatever the files are named.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, on standard error.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Answer a file of questions; run it again to resume after an interruption."""
    if as_url(questions) is not None and as_csv:
        raise InvalidInput("questions at a URL are read by the service: leave out --csv")
    parts: JobParts = {"model": model, "options": options, "priority": priority}
    lines = LinesRun(
        task=TASKS[DEFAULT_TASK],
        parts=parts,
        source=questions,
        output=output,
        read=format_of(questions, as_csv),
        write=format_of(output, as_csv),
        url=url,
        jobs=jobs,
        overwrite=overwrite,
        console=error_console(),
        quiet=quiet,
        as_json=as_json,
        names=NAMES,
    )
    if not lines.run():
        raise typer.Exit(2)


def format_of(path: Path, as_csv: bool) -> LineFormat:
    """Return the format of a file: CSV if its name or an option says so, or else JSON lines."""
    return CSV if as_csv or path.suffix.lower() == ".csv" else JSON_LINES
