"""Commands that deployment files run: each is a command of Corelane with options that it has."""

import shlex
from collections.abc import Sequence
from typing import Any

import typer

from corelane.cli.app import make_cli


def check_command(words: str | Sequence[str]) -> None:
    """Parse `corelane …` as the command line would; raise click's error for a command or option that is not there."""
    argv = shlex.split(words) if isinstance(words, str) else list(words)
    assert argv[0].endswith("corelane"), argv
    command: Any = typer.main.get_command(make_cli())
    context, rest = command.make_context("corelane", argv[1:], resilient_parsing=True), argv[1:]
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        context = typer.Context(command, info_name=name)
    command.make_parser(context).parse_args(list(rest))
