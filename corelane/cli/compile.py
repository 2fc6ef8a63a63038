"""``corelane compile``: make an artifact of a model, with a progress bar and a table of what came out."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from corelane.artifacts import Artifact, check_files, find_artifact, model_name
from corelane.cli.errors import exit_on_error, require
from corelane.engine.buckets import DEFAULT_BUCKETS
from corelane.errors import ArtifactRefused
from corelane.settings import Settings, read_settings


def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, local folder or Hugging Face id.")],
    target: Annotated[Literal["cpu", "cuda"], typer.Option(help="What to compile for.")] = "cpu",
    buckets: Annotated[str, typer.Option(help="Shapes, ROWSxLENGTH, comma-separated.")] = DEFAULT_BUCKETS,
    dtype: Annotated[
        Literal["auto", "fp32", "bf16", "fp16", "int8"],
        typer.Option(help="Number format; auto measures which is fastest here."),
    ] = "auto",
    name: Annotated[str | None, typer.Option(help="Name to serve it under; the model's own if not given.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if it is compiled already.")] = False,
) -> None:
    """Compile a model, verify it against the original, and keep it for the workers."""
    with exit_on_error():
        settings = read_settings()
        if if_missing and is_compiled(settings, name or model_name(model), target):
            return
        require("compile", "torch", "transformers", "tokenizers")
        from compile.build import build

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
    console.print(f"kept in {artifact.path}")
