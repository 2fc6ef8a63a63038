"""Notices on standard error while a command waits: the reason and the time, at once and then at intervals."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from corelane.cli.errors import sentence_of
from corelane.cli.output import error_console

if TYPE_CHECKING:
    from corelane.client import Wait

#: The shortest wait that is announced, and the time until an ongoing wait is announced again, in seconds.
SAY_S, SAY_AGAIN_S = 1.0, 30.0

#: Time between two reports of a command's progress, in seconds.
REPORT_S = 60.0

#: How long a report in progress may still take when the command is done, in seconds.
LAST_REPORT_S = 1.0


class WaitNotice:
    """Reports why a call will be repeated. Made for one command; its client calls it before each pause."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._console = console or error_console()
        self._quiet = quiet
        self._said: tuple[str, float] | None = None

    def __call__(self, wait: "Wait") -> None:
        """Print a line, unless the same line was printed a moment ago."""
        reason, now = sentence_of(wait.reason), time.monotonic()
        same = self._said is not None and self._said[0] == reason and now - self._said[1] < SAY_AGAIN_S
        if self._quiet or same or wait.seconds + wait.waited_s < SAY_S:
            return
        self._said = reason, now
        still = f"still waiting, for {wait.waited_s:.0f} s" if wait.waited_s >= SAY_S else "waiting"
        clock = time.strftime("%H:%M:%S")
        self._console.print(f"{clock} {still}: {reason}; trying again in {wait.seconds:.0f} s")


@contextmanager
def reporting(report: Callable[[], None], every_s: float | None = None) -> Iterator[None]:
    """Call a function in its own thread while the block runs, every ``REPORT_S`` or every ``every_s``."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(REPORT_S if every_s is None else every_s):
            report()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        # A report that is waiting for the service must not delay the end of the command.
        thread.join(LAST_REPORT_S)
