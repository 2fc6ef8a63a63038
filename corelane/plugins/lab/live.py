"""What a run shows while it goes on: a line or two on a terminal, redrawn; elsewhere a line now and then.

It goes to standard error, so that output stays the report.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from corelane.domain.plain import plain
from corelane.plugins.lab.load import TICK_S, LoadProgress
from corelane.plugins.lab.stats import percentile
from corelane.plugins.lab.texts import three, time_text

#: Ticks that rates and percentiles are of: ten seconds, so that they show what happens now.
RECENT = round(10 / TICK_S)

#: Time between two lines where output is no terminal, in seconds.
LINE_S = 10.0

#: Width of the bar of progress, in columns.
BAR_CHARS = 24


class LiveView:
    """The view of a session of runs, which is told their ticks."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._ticks: deque[LoadProgress] = deque(maxlen=RECENT)
        self._title = ""
        self._told_s: float | None = None
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
        self._title, self._told_s = plain(title), None
        self._ticks.clear()

    def on_tick(self, tick: LoadProgress) -> None:
        """Show how far the run is."""
        if self._ticks and tick.at_s < self._ticks[-1].at_s:  # a repeat has begun
            self._ticks.clear()
        self._ticks.append(tick)
        now = f"{tick.phase} {tick.at_s:.0f} s  {figures(self._ticks)}"
        self._bar.update(
            self._task, description=self._title, completed=tick.at_s, total=tick.measured_to_s, now=now, refresh=True
        )
        now_s = self._clock()
        if self._bar.disable and (self._told_s is None or now_s - self._told_s >= LINE_S):
            self._told_s = now_s
            self._console.print(f"{self._title}  {now}", soft_wrap=True)


def figures(ticks: Sequence[LoadProgress]) -> str:
    """Return what happened during the last ticks."""
    first, last, length_s = ticks[0].total, ticks[-1].total, ticks[-1].at_s - ticks[0].at_s
    sent, ended = ((getattr(last, name) - getattr(first, name)) / (length_s or math.inf) for name in ("sent", "ended"))
    parts = [f"{three(sent)}/s sent", f"{three(ended)}/s ended", f"{last.in_flight:,} in flight"]
    if ordered := sorted(latency for tick in ticks for latency in tick.total.latencies):
        parts += [f"p{percent} {time_text(percentile(ordered, percent))}" for percent in (50, 95)]
    parts += [f"{count:,} {name}" for name, count in (("failed", last.failed), ("refused", last.refused)) if count]
    return ", ".join([*parts, f"late {time_text(last.late_s)}"])
