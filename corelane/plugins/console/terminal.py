"""A terminal that a command draws on: the alternate screen, single keys, and changes of size.

When the block of ``take_over`` ends, also by Ctrl-C or SIGTERM, the terminal is restored.
"""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console, RenderableType
from rich.live import Live

#: What shells use for a process ended by SIGTERM: 128 + 15.
TERMINATED = 143


class Screen:
    """The screen while it is taken over; made by ``take_over``. ``wake`` may be called from any thread."""

    def __init__(self, console: Console, live: Live, reading: int, writing: int) -> None:
        self._console, self._live = console, live
        self._reading, self._writing = reading, writing
        self._watched = [reading, *([sys.stdin.fileno()] if sys.stdin.isatty() else [])]

    @property
    def height(self) -> int:
        """Return the current height of the terminal, in lines."""
        return self._console.size.height

    def show(self, found: RenderableType) -> None:
        """Draw ``found`` in place of the previous content."""
        self._live.update(found, refresh=True)

    def wake(self) -> None:
        """Make ``wait`` return."""
        with suppress(OSError):
            os.write(self._writing, b" ")

    def wait(self, seconds: float) -> str:
        """Wait for a key, a wake-up, a new size, or ``seconds``; return the key, or an empty string."""
        ready, _, _ = select.select(self._watched, [], [], seconds)
        if self._reading in ready:
            os.read(self._reading, 4096)
        if len(self._watched) > 1 and self._watched[1] in ready:
            typed = os.read(self._watched[1], 1)
            if not typed:
                self._watched.pop()
            return typed.decode(errors="replace")
        return ""


@contextmanager
def take_over(console: Console) -> Iterator[Screen]:
    """Draw on the terminal's alternate screen until the block ends."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = termios.tcgetattr(sys.stdin.fileno()) if sys.stdin.isatty() else None

    def end(_: int, __: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    screen = Screen(console, live, reading, writing)
    handlers = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: screen.wake()),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
    }
    try:
        if before is not None:
            tty.setcbreak(sys.stdin.fileno())
        with live:
            yield screen
    finally:
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
        if before is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        # The other end is left open: a thread may still wake it.
        os.close(reading)
