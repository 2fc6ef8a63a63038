"""``corelane compile``: make an artifact of a model, with a progress bar and a table of what came out."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from corelane.artifacts import Artifact, check_files, find_artifact, model_name
from corelane.cli.errors import exit_on_error, require
from corelane.cli.evaluate import read_document
from corelane.cli.squad import best_over, read_questions, token_f1
from corelane.engine.buckets import DEFAULT_BUCKETS
from corelane.errors import ArtifactRefused, InvalidInput
from corelane.settings import Settings, read_settings

if TYPE_CHECKING:
    from compile.exam import Exam


def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, local folder or Hugging Face id.")],
    target: Annotated[Literal["cpu"], typer.Option(help="What to compile for.")] = "cpu",
    buckets: Annotated[str, typer.Option(help="Shapes, ROWSxLENGTH, comma-separated.")] = DEFAULT_BUCKETS,
    dtype: Annotated[
        Literal["auto", "fp32", "bf16", "int8"],
        typer.Option(help="Number format; auto measures which is fastest here."),
    ] = "auto",
    name: Annotated[str | None, typer.Option(help="Name to serve it under; the model's own if not given.")] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="SQuAD-format file with answers: the loss of F1 is measured on it, and bounds int8."),
    ] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if it is compiled already.")] = False,
) -> None:
    """Compile a model, verify it against the original, and keep it for the workers."""
    with exit_on_error():
        settings = read_settings()
        if if_missing and is_compiled(settings, name or model_name(model), target):
            return
        require("compile", "torch", "transformers", "tokenizers")
        from compile.build import build

        exam = None if questions is None else read_exam(questions)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as progress:
            task = progress.add_task("starting", total=None)
            artifact = build(
                model,
                settings=settings,
                target=target,
                buckets=buckets,
                dtype=dtype,
                name=name,
                exam=exam,
                report=lambda text, done, total: progress.update(task, description=text, completed=done, total=total),
            )
        show_artifact(artifact, Console(highlight=False, soft_wrap=True))


def is_compiled(settings: Settings, name: str, target: str) -> bool:
    """Whether an artifact of this name lies below the root; a damaged one counts as none."""
    try:
        check_files(find_artifact(settings.artifact_root, name, target))
    except ArtifactRefused:
        return False
    return True


def read_exam(path: Path) -> "Exam":
    """The questions of a SQuAD-format file that have an answer; raises InvalidInput if none has."""
    from compile.exam import Exam
    from corelane.engine.reading import Query

    asked = [question for question in read_questions(read_document(path)).questions if question.references]
    if not asked:
        raise InvalidInput(f"{path} has no question with an answer")
    queries = [Query(question.question, question.context) for question in asked]
    references = [question.references for question in asked]
    return Exam(path.name, queries, references, partial(best_over, token_f1))


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does, so that a half-written artifact is cleared away."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def show_artifact(artifact: Artifact, console: Console) -> None:
    """Print what was compiled and measured."""
    manifest = artifact.manifest
    table = Table(title=f"{manifest.version_id}, {manifest.dtype} for {manifest.target}", title_justify="left")
    for heading in ("bucket", "seconds", "MB", "ms per batch", "seq/s", "max |Δlogit|"):
        table.add_column(heading, justify="right")
    for bucket in manifest.buckets:
        table.add_row(
            f"{bucket.rows}x{bucket.length}",
            f"{bucket.compile_s:.1f}",
            f"{bucket.bytes / 1e6:.1f}",
            f"{bucket.batch_ms:.1f}",
            f"{1000 * bucket.rows / bucket.batch_ms:.0f}",
            f"{bucket.max_logit_error:.2g}",
        )
    console.print(table)
    if manifest.trial:
        speeds = ", ".join(f"{dtype} {speed:.0f}" for dtype, speed in manifest.trial.items())
        console.print(f"trial, seq/s on one core: {speeds}")
    console.print(f"sample answers equal to the eager model's: {manifest.answers_equal:.0%}")
    if manifest.f1_questions:
        over = f"{manifest.f1_questions} questions of {manifest.f1_source}"
        console.print(f"F1 lost against the eager model: {manifest.f1_loss:.2f} points, over {over}")
    console.print(f"kept in {artifact.path}")
