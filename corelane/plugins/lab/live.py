"""What a run shows while it goes on: a line or two on a terminal, redrawn; elsewhere a line now and then.

It goes to standard error, so that output stays the report.
"""

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from corelane.domain.plain import plain
from corelane.plugins.lab.figures import MOST_LATENESS_S
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
        self._live: Live | None = None

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begin(self, title: str) -> None:
        """Say which point is measured from now on."""
        self._title, self._gauge, self._told_s = plain(title), Gauge(), None

    def on_tick(self, tick: Progress) -> None:
        """Show how far the run is."""
        self._gauge.add(tick)
        if self._live is not None:
            self._live.update(view(self._title, self._gauge), refresh=True)
            return
        now = self._clock()
        if self._told_s is None or now - self._told_s >= LINE_S:
            self._told_s = now
            self._console.print(line(self._title, self._gauge), soft_wrap=True)


def view(title: str, gauge: Gauge) -> Table:
    """Return the title with a bar of progress, and the figures of now beneath."""
    table = Table.grid()
    table.add_row(Text.assemble((title, "bold"), "  ", *_bar(gauge)))
    table.add_row(figures(gauge))
    return table


def line(title: str, gauge: Gauge) -> Text:
    """Return one line, for a log."""
    tick = gauge.last
    at = "" if tick is None else f"{tick.phase} {tick.at_s:.0f} s  "
    return Text.assemble(f"{title}  " if title else "", at, figures(gauge))


def figures(gauge: Gauge) -> Text:
    """Return the figures of now."""
    tick = gauge.last
    if tick is None:
        return Text("starting", "dim")
    sent, ended = gauge.rates
    text = Text(f"{three(sent)}/s sent, {three(ended)}/s ended, {tick.in_flight:,} in flight")
    if (now := gauge.percentiles) is not None:
        text.append(f", p50 {time_text(now[0])}, p95 {time_text(now[1])}")
    if tick.failed:
        text.append(f", {tick.failed:,} failed", "bold red")
    if tick.refused:
        text.append(f", {tick.refused:,} refused", "yellow")
    text.append(f", late {time_text(tick.late_s)}", "bold red" if tick.late_s > MOST_LATENESS_S else "")
    return text


def _bar(gauge: Gauge) -> list[tuple[str, str]]:
    tick = gauge.last
    if tick is None:
        return [("", "")]
    share = 0.0
    if tick.measured_to_s:
        share = min(1.0, tick.at_s / tick.measured_to_s)
    full = round(BAR_CHARS * share)
    until = f" of {tick.measured_to_s:.0f}" if tick.measured_to_s else ""
    bar = [("━" * full, "green"), ("━" * (BAR_CHARS - full), "dim")] if until else []
    return [*bar, (f"  {tick.phase} {tick.at_s:.0f}{until} s", "dim")]
