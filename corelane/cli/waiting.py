"""What a command says on standard error while it waits: the reason and the time, at first and then now and then."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console

from corelane.cli.words import in_words

if TYPE_CHECKING:
    from corelane.client import Wait

#: Say nothing of a wait shorter than this, and say again after this long that a wait goes on; in seconds.
TELL_S, TELL_AGAIN_S = 1.0, 30.0

#: A command that works through many questions says this often how far it is, in seconds.
PULSE_S = 60.0


class Waiting:
    """Tells why a call is sent again later. Made for one command; called by its client before each pause."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._told: tuple[str, float] | None = None

    def __call__(self, wait: "Wait") -> None:
        """Print a line, unless the same was said a moment ago."""
        reason, now = in_words(wait.reason), time.monotonic()
        same = self._told is not None and self._told[0] == reason and now - self._told[1] < TELL_AGAIN_S
        if self._quiet or same or wait.seconds + wait.waited_s < TELL_S:
            return
        self._told = reason, now
        still = f"still waiting, for {wait.waited_s:.0f} s" if wait.waited_s >= TELL_S else "waiting"
        clock = time.strftime("%H:%M:%S")
        self._console.print(f"{clock} {still}: {reason}; trying again in {wait.seconds:.0f} s", markup=False)


class Pulse:
    """Calls a function every ``PULSE_S`` in a thread of its own, as long as its ``with`` lasts."""

    def __init__(self, beat: Callable[[], None], every_s: float | None = None) -> None:
        self._beat = beat
        self._every_s = PULSE_S if every_s is None else every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._beat()
