"""The commands of ``corelane``, put together."""

import typer

from corelane.cli.ask import ask
from corelane.cli.batch import batch
from corelane.cli.batches import batches
from corelane.cli.calibrate import calibrate
from corelane.cli.compile import compile_model, verify
from corelane.cli.doctor import doctor
from corelane.cli.evaluate import evaluate
from corelane.cli.files import files
from corelane.cli.fleet import cores, models
from corelane.cli.health import health
from corelane.cli.jobs import jobs
from corelane.cli.keys import keys
from corelane.cli.roles import api, deliveries, flower, keeper, worker
from corelane.cli.serve import serve
from corelane.cli.start import begin
from corelane.cli.webhooks import webhooks


def make_cli() -> typer.Typer:
    """The command-line application."""
    cli = typer.Typer(
        name="corelane",
        help="Queue-driven, asynchronous batch inference for extractive question answering.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    # Its help stands here: a callback's docstring would replace it.
    cli.callback(help=cli.info.help, no_args_is_help=True)(begin)
    cli.command()(serve)
    cli.command()(ask)
    cli.command()(batch)
    cli.command("eval")(evaluate)
    cli.command("compile")(compile_model)
    cli.command()(verify)
    cli.command()(calibrate)
    cli.command()(doctor)
    cli.command()(cores)
    cli.add_typer(jobs, name="jobs")
    cli.add_typer(batches, name="batches")
    cli.add_typer(files, name="files")
    cli.add_typer(models, name="models")
    cli.add_typer(webhooks, name="webhooks")
    cli.add_typer(keys, name="keys")
    roles = "One process of the fleet"
    cli.command(rich_help_panel=roles)(api)
    cli.command(rich_help_panel=roles)(worker)
    cli.command(rich_help_panel=roles)(keeper)
    cli.command(rich_help_panel=roles)(deliveries)
    cli.command(rich_help_panel=roles)(flower)
    cli.command(rich_help_panel=roles)(health)
    return cli


def main() -> None:
    """The entry point of ``corelane``."""
    make_cli()(prog_name="corelane")
