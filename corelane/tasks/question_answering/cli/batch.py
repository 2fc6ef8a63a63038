"""``corelane batch``: questions, one JSON object a line or a table, answered into results in the same order.

How a run goes, is interrupted and resumed is at ``lines_run``.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.lines_run import LinesRun
from corelane.cli.options import JobsOption, MapOption, OutputOption, OverwriteOption, PriorityOption, QuietOption
from corelane.cli.output import error_console
from corelane.cli.service import ModelOption, UrlOption
from corelane.cli.tables.forms import STANDARD
from corelane.domain.jobs import DEFAULT_TASK, Priority
from corelane.tasks.question_answering.cli.options import NAMES, AnswerOptions
from corelane.tasks.registry import TASKS

if TYPE_CHECKING:
    from corelane.client.endpoints import JobParts


def batch(
    options: AnswerOptions,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUESTIONS",
            help="Lines of JSON with question, context and id, or a .csv, .tsv or .parquet with these columns; - is "
            "standard input; s3://… or https://… is read by the service.",
        ),
    ] = STANDARD,
    output: OutputOption = STANDARD,
    mapped: MapOption = None,
    url: UrlOption = None,
    model: ModelOption = "default",
    priority: PriorityOption = Priority.NORMAL,
    jobs: JobsOption = 4,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, on standard error.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Answer a file of questions; run it again to resume after an interruption."""
    parts: JobParts = {"model": model, "options": options, "priority": priority}
    lines = LinesRun(
        task=TASKS[DEFAULT_TASK],
        parts=parts,
        source=questions,
        output=output,
        mapped=mapped or (),
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
