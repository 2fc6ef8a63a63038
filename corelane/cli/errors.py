"""Errors at the command line: a foreseen failure is a red sentence on standard error and exit code 1, Ctrl-C is 130.

Any other exception is a bug and keeps its traceback. A service's refusals are put in terms of options and commands, not
of headers and requests.
"""

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import typer

from corelane.cli.output import error_console
from corelane.errors import CorelaneError, ServiceError, SetupError
from corelane.errors.extras import install_command
from corelane.settings.rules import SettingsError

#: What shells use for a process ended by SIGINT: 128 + 2.
INTERRUPTED = 130

#: The command that shows what ``GET /v1/KEY`` returns, by KEY.
COMMANDS = {"cores": "`corelane cores`", "models": "`corelane models list`"}

#: The words that replace an address, a header or a field in a sentence of the service.
PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"send `?Authorization: Bearer(?: clk_…)?`?", "set CORELANE_API_KEY"),
    (r"\(PUT /v1/aliases/NAME\)", "(`corelane models alias NAME VERSION`)"),
    (r"(?:give )?`?force=true`?", "give --force"),
    (r"`force` moves the alias now", "--force moves the alias now"),
    (r"`GET /v1/(cores|models)`|GET /v1/(cores|models)", lambda found: COMMANDS[found[1] or found[2]]),
    (r"POST /v1/cores/all/models", "--core all"),
    (r"send it as lines \(application/x-ndjson\)", "use `corelane batch`"),
)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn a CorelaneError, or a bad setting, into a sentence and an exit code."""
    try:
        yield
    except (CorelaneError, SettingsError) as error:
        for sentence in error.sentences if isinstance(error, SettingsError) else [sentence_of(error)]:
            error_console().print(sentence, style="red")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block by an exception, with what shells use as exit code for it: 128 + 15.

    Does nothing outside the main thread, and where SIGTERM has a handler.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sentence_of(error: CorelaneError) -> str:
    """Return the sentence of an error, in terms of the command line."""
    text = error.detail
    if isinstance(error, ServiceError):
        for pattern, words in PHRASES:
            text = re.sub(pattern, words, text)
    return text


def require(extra: str, *modules: str) -> None:
    """Raise SetupError naming the extra to install if a module is missing. Imports nothing."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise SetupError(f"this command needs {', '.join(missing)}: run `{install_command(extra)}`")
