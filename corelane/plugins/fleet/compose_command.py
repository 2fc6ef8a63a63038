"""``corelane compose``: write the file for Docker Compose that starts one worker for each core of a host."""

from pathlib import Path
from typing import Annotated

import typer

from corelane.cli.errors import require
from corelane.cli.output import error_console
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.fleet.compose import REDIS_IMAGE, Choices, compose_file, compose_override
from corelane.plugins.fleet.layout import TARGETS, lay_out
from corelane.settings import Settings


def compose(
    cores: Annotated[
        int | None, typer.Option(help="Workers, one for each core; all cores of --chips or --instance.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="|".join(TARGETS), help="What the models run on; cpu, or that of --instance.")
    ] = None,
    chips: Annotated[int | None, typer.Option(help="Neuron devices of the host.")] = None,
    instance: Annotated[
        str | None, typer.Option(help="Type of host, as inf2.24xlarge: its target, chips, price.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")] = None,
    override: Annotated[
        bool, typer.Option("--override", help="Write an override of docker-compose.yml instead of a whole file.")
    ] = False,
    workers_alone: Annotated[
        bool,
        typer.Option("--workers-alone", help="No Redis and no API: for a further host of a service that has them."),
    ] = False,
    redis_image: Annotated[str, typer.Option(help="Image of Redis, or of Valkey.")] = REDIS_IMAGE,
    share_devices: Annotated[
        bool,
        typer.Option(
            "--share-devices",
            help="Give each worker every device, not its own alone: for runtimes that count from the first they see.",
        ),
    ] = False,
) -> None:
    """Write a Docker Compose file with one worker for each core, on the right device."""
    layout = lay_out(target, cores, chips, instance)
    if override and workers_alone:
        raise InvalidInput("--override adds to a file that has Redis and the API: leave out --workers-alone")
    choices = Choices(redis_image, share_devices, workers_alone)
    require("api", "jinja2")
    text = compose_override(layout, choices) if override else compose_file(layout, Settings.model_fields, choices)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise SetupError(f"{output} cannot be written: {error.strerror}") from None
    error_console().print(f"wrote {output}: {layout.cores} workers, target {layout.target}")
