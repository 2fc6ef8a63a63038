"""The start of every command: ``--version``, and a warning for each variable that only resembles a setting.

A part that `corelane serve` started prints no warnings: its parent did. The warnings are log lines where logs are JSON.
"""

from typing import Annotated

import typer
from rich.console import Console

from corelane import __version__
from corelane.cli.output import error_console
from corelane.settings import names_were_checked, read_settings, unknown_names
from corelane.settings.names import UnknownName
from corelane.settings.rules import SettingsError

#: Commands whose standard error is a log.
ROLES = ("api", "worker", "keeper", "deliveries", "flower")


def say_version(wanted: bool) -> None:
    """Print the version and exit, if that was requested."""
    if wanted:
        typer.echo(f"corelane {__version__}")
        raise typer.Exit


def begin(
    invoked: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=say_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Warn of mistyped settings before the command runs."""
    del version  # handled by its callback
    # The doctor lists them among its checks.
    unknown = [] if names_were_checked() or invoked.invoked_subcommand == "doctor" else unknown_names()
    if unknown:
        warn(unknown, as_log=_logs_json(invoked.invoked_subcommand))


def warn(unknown: list[UnknownName], *, as_log: bool) -> None:
    """Write a warning for each name to standard error, or an error if the name was meant to protect the service."""
    if as_log:
        from corelane.log import configure_logging, get_logger

        configure_logging(style="json")
        log = get_logger("corelane.settings")
        for each in unknown:
            say = log.error if each.guards else log.warning
            say("unknown_setting", setting=each.name, nearest=each.nearest, detail=each.sentence)
        return
    for each in unknown:
        error_console().print(each.sentence, style="bold red" if each.guards else "yellow")


def _logs_json(command: str | None) -> bool:
    try:
        style = read_settings().log_format
    except SettingsError:
        return False  # the command itself refuses the wrong value
    return style == "json" or (style == "auto" and command in ROLES and not Console(stderr=True).is_terminal)
