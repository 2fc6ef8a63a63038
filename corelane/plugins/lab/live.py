"""The display of a run in progress: a redrawn line on a terminal, or else a line at intervals.

It is written to standard error, so that standard output has only the report.
"""

from types import TracebackType

from rich.console import Console
from rich.text import Text

from corelane.cli.output import plain
from corelane.plugins.lab.load import LoadProgress

#: Time between two lines if output is not a terminal, in seconds.
LINE_S = 10.0


class LiveView:
    """The view of a session of runs; it receives their ticks."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._status = self._console.status("")
        self._title, self._next_s = "", 0.0

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.stop()

    def begin(self, title: str) -> None:
        """Show which point is measured from now on."""
        self._title, self._next_s = plain(title), 0.0

    def on_tick(self, tick: LoadProgress) -> None:
        """Show the progress of the run: how many requests were sent, have ended, and failed."""
        total = tick.total
        counts = {"sent": total.sent, "ended": total.ended, "in flight": total.in_flight}
        counts |= {name: count for name, count in (("failed", total.failed), ("refused", total.refused)) if count}
        now = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        line = f"{self._title}  {tick.phase} {tick.at_s:.0f} s  {now}"
        if self._console.is_terminal:
            self._status.update(Text(line))
        elif tick.at_s >= self._next_s:
            self._next_s = tick.at_s + LINE_S
            self._console.print(line, soft_wrap=True)
