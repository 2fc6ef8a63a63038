"""What a run shows while it goes on: a line on a terminal, redrawn; elsewhere a line now and then.

It goes to standard error, so that output stays the report.
"""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from corelane.domain.plain import plain
from corelane.plugins.lab.load import LoadProgress

#: Time between two lines where output is no terminal, in seconds.
LINE_S = 10.0

#: Width of the bar of progress, in columns.
BAR_CHARS = 24


class LiveView:
    """The view of a session of runs, which is told their ticks."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._title = ""
        self._next_s = 0.0
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(BAR_CHARS),
            TextColumn("{task.fields[now]}", markup=False),
            console=self._console,
            transient=True,
            auto_refresh=False,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, now="")

    def __enter__(self) -> "LiveView":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, title: str) -> None:
        """Say which point is measured from now on."""
        self._title, self._next_s = plain(title), 0.0

    def on_tick(self, tick: LoadProgress) -> None:
        """Show how far the run is."""
        now = f"{tick.phase} {tick.at_s:.0f} s  {counts(tick)}"
        self._bar.update(
            self._task, description=self._title, completed=tick.at_s, total=tick.measured_to_s, now=now, refresh=True
        )
        if self._bar.disable and tick.at_s >= self._next_s:
            self._next_s = tick.at_s + LINE_S
            self._console.print(f"{self._title}  {now}", soft_wrap=True)


def counts(tick: LoadProgress) -> str:
    """Return how many requests were sent, have ended, and failed."""
    total = tick.total
    parts = [f"{total.sent:,} sent", f"{total.ended:,} ended", f"{total.in_flight:,} in flight"]
    parts += [f"{count:,} {name}" for name, count in (("failed", total.failed), ("refused", total.refused)) if count]
    return ", ".join(parts)
