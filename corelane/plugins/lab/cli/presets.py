"""``corelane bench preset NAME`` and ``corelane bench presets``: well-known experiments."""

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from corelane.cli.output import error_console
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.cli.options import WhatOptions, WhereOptions
from corelane.plugins.lab.cli.output import OutputOptions, finish, write_to
from corelane.plugins.lab.cli.session import report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corelane.plugins.lab.presets import Preset, PresetOutcome
    from corelane.plugins.lab.schema import Report
    from corelane.plugins.lab.senders import Target


def list_presets() -> None:
    """List the presets."""
    from corelane.plugins.lab.presets import PRESETS

    table = Table(box=None, show_header=False)
    for preset in PRESETS.values():
        table.add_row(f"[bold]{preset.name}[/bold]", preset.summary)
    Console(highlight=False).print(table)


def preset(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `corelane bench presets`.")],
    where: WhereOptions,
    what: WhatOptions,
    outputs: OutputOptions,
    batch_api_key: Annotated[
        str | None, typer.Option(help="The key of the other owner, where a preset has one.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of models that a preset compiles.")] = "bf16",
    repeat: Annotated[int, typer.Option(min=1, help="Times that each point is measured, for an interval.")] = 1,
    seed: Annotated[int, typer.Option(help="Of arrivals and items.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds, small numbers: its figures mean nothing.")] = False,
    update: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace the preset's table in a Markdown document.")
    ] = None,
) -> None:
    """Run a published experiment, and print its table with the published rows."""
    from corelane.domain.jobs import DEFAULT_TASK
    from corelane.domain.prices import host_price
    from corelane.plugins.lab.machine import read_machine, serving_cores
    from corelane.plugins.lab.presets import PRESETS, Stage
    from corelane.plugins.lab.presets.tables import replace_block, wrap
    from corelane.plugins.lab.senders import Target
    from corelane.settings import read_settings

    if name not in PRESETS:
        raise InvalidInput(f"there is no preset {name}: the presets are {', '.join(PRESETS)}")
    found = PRESETS[name]
    if update is not None and replace_block(read_document(update), name, "") is None:
        raise InvalidInput(f"{update} has no block for the table of {name}")
    if found.own_services and where.url is not None:
        raise InvalidInput(f"{name} starts the services that it measures: leave --url out")
    settings = read_settings()
    with OwnServices(where.model, dtype, what.task or DEFAULT_TASK) as services:
        if found.own_services:
            target, cores = Target("http://127.0.0.1:0", model=where.model), read_machine().cores
            target = replace(target, task=what.task or target.task)
        else:
            target = services.enter_context(where.service())
            target = replace(target, task=what.task_of(target))
            cores = serving_cores(target)
        stage = Stage(
            target=target,
            cores=cores,
            quick=quick,
            seed=seed,
            repeat=repeat,
            workload=what.read_given(seed, target.task),
            batch_key=batch_api_key,
            host=host_price(settings) if settings.instance or settings.price_per_hour else None,
            serve=services.serve,
            show=outputs.showing,
            say=lambda text: error_console().print(text, style="dim"),
        )
        report = report_of_outcome(found, found.run(stage), ctx)
    if outputs.shows_table:
        Console(highlight=False, markup=False, soft_wrap=True).print(report.extra["table"] + "\n")
    if update is not None and report.valid:
        document = replace_block(read_document(update), name, wrap(report.extra["table"]))
        write_to(update, (document or "").encode())
    finish(report, outputs)


def read_document(path: Path) -> str:
    """Return a document's text; raise InvalidInput if it cannot be read."""
    try:
        return path.read_text()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


class OwnServices(ExitStack):
    """Starts services one at a time, each with a model of one shape. The last keeps running."""

    def __init__(self, model: str, dtype: str, task: str) -> None:
        super().__init__()
        self._model, self._dtype, self._task = model, dtype, task

    def serve(self, own: "Mapping[str, object]", bucket: str) -> "Target":
        """Stop the previous service, and start one with these settings."""
        from corelane.cli.local import running_service
        from corelane.plugins.lab.senders import Target
        from corelane.settings import read_settings

        self.close()
        settings = read_settings()
        model = settings.model if self._model == "default" else self._model
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-", ignore_cleanup_errors=True))
        changes = dict(own) | {"log_level": "warning"}
        if settings.target == "cpu":
            changes |= {"model": self._compiled(model, bucket), "artifacts_dir": settings.artifact_root}
        return Target(self.enter_context(running_service(Path(folder), **changes)), task=self._task)

    def _compiled(self, model: str, bucket: str) -> str:
        """Return the name of a model that is compiled for one shape; compile it if needed."""
        import subprocess

        name = f"{Path(model).name}-{bucket}"
        argv = [sys.executable, "-m", "corelane", "compile", model, "--buckets", bucket, "--name", name]
        argv += ["--dtype", self._dtype, "--if-missing"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
        if done.returncode:
            raise SetupError(f"{model} could not be compiled for {bucket}: {done.stderr.strip()[-500:]}")
        return name


def report_of_outcome(found: "Preset", outcome: "PresetOutcome", ctx: typer.Context) -> "Report":
    """Return the report of a preset's measurements."""
    from corelane.plugins.lab.presets.tables import caption, published_row, sources, table_of

    report = report_of(outcome.session, outcome.points, found.name, ctx)
    report.beside, report.published = outcome.beside, list(outcome.published)
    report.invalid += outcome.invalid
    report.valid = not report.invalid
    table = table_of([*outcome.rows, *map(published_row, outcome.published)])
    command = f"corelane bench preset {found.name}"
    about = caption(report.machine, report.service, report.created_at, command)
    text = "\n\n".join(filter(None, [about, table.strip(), sources(outcome.published)]))
    report.extra |= outcome.extra | {"rows": [dict(row) for row in outcome.rows], "table": text}
    return report
