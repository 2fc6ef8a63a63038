"""What a run shows while it goes on: a line or two on a terminal, redrawn; elsewhere a line now and then.

It goes to standard error, so that output stays the report.
"""

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Progressing

from corelane.domain.plain import plain
from corelane.plugins.lab.load import Progress
from corelane.plugins.lab.stats import percentile
from corelane.plugins.lab.texts import three, time_text

#: Rates and percentiles are of the last seconds, so that they show what happens now.
RECENT_S = 10.0

#: Time between two lines where output is no terminal, in seconds.
LINE_S = 10.0

#: Width of the bar of progress, in columns.
BAR_CHARS = 24


class Gauge:
    """Keeps the last seconds of a run. Pure but for what it is told."""

    def __init__(self) -> None:
        self._ticks: deque[Progress] = deque()

    @property
    def last(self) -> Progress | None:
        """The latest tick."""
        return self._ticks[-1] if self._ticks else None

    def add(self, tick: Progress) -> None:
        """Take a tick in; one from before the last belongs to a new run."""
        if self._ticks and tick.at_s < self._ticks[-1].at_s:
            self._ticks.clear()
        self._ticks.append(tick)
        while self._ticks[0].at_s < tick.at_s - RECENT_S:
            self._ticks.popleft()

    @property
    def rates(self) -> tuple[float, float]:
        """Requests sent and ended a second, over the last seconds."""
        first, last = self._ticks[0], self._ticks[-1]
        length_s = last.at_s - first.at_s
        return ((last.sent - first.sent) / length_s, (last.ended - first.ended) / length_s) if length_s else (0.0, 0.0)

    @property
    def percentiles(self) -> tuple[float, float] | None:
        """The p50 and p95 of the last seconds; None if nothing ended."""
        ordered = sorted(latency for tick in self._ticks for latency in tick.latencies)
        return (percentile(ordered, 50), percentile(ordered, 95)) if ordered else None


class LiveView:
    """The view of a session of runs, which is told their ticks."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._gauge = Gauge()
        self._title = ""
        self._told_s: float | None = None
        self._bar = Progressing(
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
        self._title, self._gauge, self._told_s = plain(title), Gauge(), None

    def on_tick(self, tick: Progress) -> None:
        """Show how far the run is."""
        self._gauge.add(tick)
        now = f"{tick.phase} {tick.at_s:.0f} s  {figures(self._gauge)}"
        self._bar.update(
            self._task, description=self._title, completed=tick.at_s, total=tick.measured_to_s, now=now, refresh=True
        )
        now_s = self._clock()
        if self._bar.disable and (self._told_s is None or now_s - self._told_s >= LINE_S):
            self._told_s = now_s
            self._console.print(f"{self._title}  {now}", soft_wrap=True)


def figures(gauge: Gauge) -> str:
    """Return the figures of now."""
    tick = gauge.last
    if tick is None:
        return "starting"
    sent, ended = gauge.rates
    parts = [f"{three(sent)}/s sent", f"{three(ended)}/s ended", f"{tick.in_flight:,} in flight"]
    if (now := gauge.percentiles) is not None:
        parts += [f"p50 {time_text(now[0])}", f"p95 {time_text(now[1])}"]
    parts += [f"{count:,} {name}" for name, count in (("failed", tick.failed), ("refused", tick.refused)) if count]
    return ", ".join([*parts, f"late {time_text(tick.late_s)}"])
