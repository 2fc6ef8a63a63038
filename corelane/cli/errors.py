"""Errors at the command line: a foreseen failure is a red sentence on standard error and exit code 1, Ctrl-C is 130.

Anything else is a mistake of ours and keeps its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import typer
from rich.console import Console

from corelane.cli.words import in_words
from corelane.errors import CorelaneError, SetupError
from corelane.errors.extras import install_command
from corelane.settings.rules import SettingsError

#: What shells use for a process ended by SIGINT: 128 + 2.
INTERRUPTED = 130


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn a CorelaneError, or a bad setting, into a sentence and an exit code."""
    try:
        yield
    except CorelaneError as error:
        _say(in_words(error))
        raise typer.Exit(1) from None
    except SettingsError as error:
        for sentence in error.sentences:
            _say(sentence)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def require(extra: str, *modules: str) -> None:
    """Raise SetupError naming the extra to install if a module is missing; imports nothing."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise SetupError(f"this command needs {', '.join(missing)}: run `{install_command(extra)}`")


def _say(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(sentence, style="red")
