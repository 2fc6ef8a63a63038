"""The application ``corelane``: its commands and their names."""

import os
import sys

import typer

import corelane.tasks.handler.cli  # noqa: F401  # a command of `models`
from corelane.cli.commands import CommandGroup
from corelane.cli.compile import compile_model
from corelane.cli.doctor import doctor
from corelane.cli.fleet import cores, models
from corelane.cli.health import health
from corelane.cli.jobs import jobs
from corelane.cli.keys import keys
from corelane.cli.plugin import CommandPlugin
from corelane.cli.roles import api, deliveries, flower, keeper, worker
from corelane.cli.run import run
from corelane.cli.serve import serve
from corelane.cli.start import begin
from corelane.cli.webhooks import webhooks
from corelane.plugin import installed
from corelane.tasks.question_answering.cli.ask import ask
from corelane.tasks.question_answering.cli.batch import batch


def make_cli() -> typer.Typer:
    """Return the command-line application."""
    cli = CommandGroup(
        name="corelane",
        help="A durable queue in front of text models: POST one item or a million, get every result once.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    # The help is passed explicitly, because the callback's docstring would replace it.
    cli.callback(help=cli.info.help, no_args_is_help=True)(begin)
    cli.command()(serve)
    cli.command()(ask)
    cli.command()(batch)
    cli.command()(run)
    cli.command("compile")(compile_model)
    cli.command()(doctor)
    cli.command()(cores)
    for name, group in {"jobs": jobs, "models": models, "webhooks": webhooks, "keys": keys}.items():
        cli.add_typer(group, name=name)
    for role in (api, worker, keeper, deliveries, flower, health):
        cli.command(rich_help_panel="One process of the fleet")(role)
    for plugin in installed(CommandPlugin):
        plugin.commands(cli)
    return cli


def main() -> None:
    """Run ``corelane``; in an ASCII locale in UTF-8, so that arguments, names of files and output may have any text."""
    if sys.getfilesystemencoding() == "ascii":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  # no shell is wanted
    make_cli()(prog_name="corelane")
