"""A command on a pseudo-terminal: what it writes there, and keys that a person types."""

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

#: Everything takes milliseconds; a busy machine much longer.
WAIT_S = 60


class Terminal:
    """The command, and all that it has written so far."""

    def __init__(self, command: Sequence[str], columns: int, *, has_output: bool) -> None:
        """Without ``has_output``, only standard error is the terminal."""
        self._ours, theirs = pty.openpty()
        self.resize(24, columns)
        # A fixed size in the environment would go before the terminal's.
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs if has_output else subprocess.DEVNULL,
            stderr=theirs,
            env=env | {"TERM": "xterm-256color"},
            preexec_fn=lambda: own_terminal(theirs),
        )
        os.close(theirs)
        self.raw, self._seen_from = b"", 0

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    @property
    def seen(self) -> str:
        """What was written since the last ``until`` began."""
        return self.raw[self._seen_from :].decode(errors="replace")

    def until(self, pattern: str) -> str:
        """Read until the screen's new text matches; return that text."""
        deadline, self._seen_from = time.monotonic() + WAIT_S, len(self.raw)
        while not re.search(pattern, self.seen, re.DOTALL):
            assert time.monotonic() < deadline, self.seen
            self.read(0.2)
        return self.seen

    def read(self, seconds: float = 0) -> None:
        if self._ours >= 0 and select.select([self._ours], [], [], seconds)[0]:
            # The other end is closed once the command has ended.
            with suppress(OSError):
                self.raw += os.read(self._ours, 65_536)

    def lines(self) -> list[str]:
        """Return all lines, without control codes, and those that were written over."""
        self.read()
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace"))
        return [line for line in re.split(r"[\r\n]+", text) if line]

    def end(self) -> int:
        """Wait for the end, reading what is written; return the exit status."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read(0.05)
        self.read()
        return self.process.returncode

    def close(self) -> None:
        """Kill the command if it runs, and read what is left."""
        self.process.kill()
        self.process.wait()
        self.read()
        os.close(self._ours)
        self._ours = -1


@contextmanager
def terminal(command: Sequence[str], columns: int = 80, *, has_output: bool = True) -> Iterator[Terminal]:
    """Run a command on a terminal of 24 lines."""
    shown = Terminal(command, columns, has_output=has_output)
    try:
        yield shown
    finally:
        shown.close()


def own_terminal(theirs: int) -> None:
    """Make it the process's own, so that Ctrl-C there is a signal, though this runs in a shell's background."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
