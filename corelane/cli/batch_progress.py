"""The progress of ``corelane batch``: lines done in all jobs in flight, the rate of this run, and the time left.

A line is done once the service has finished it, though its result may not be written yet: results are read in the order
of the lines. Lines of an earlier run count as done, and not for the rate.
"""

import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from os import fstat
from typing import TYPE_CHECKING, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from corelane.cli.waiting import reporting

if TYPE_CHECKING:
    from corelane.client.bulk import BulkState

#: Time between two looks at the jobs in flight for the bar, in seconds; and that over which the rate is taken.
LOOK_S, RATE_S = 1.0, 60.0

#: Width of the bar, in columns: all of its line fits 80.
BAR_CHARS = 20


@dataclass(slots=True)
class Meter:
    """The lines of one run: ``before`` are those that the output held when it began, ``at`` those read by now.

    ``is_resumed`` if an earlier run may have asked some of the jobs in flight.
    """

    state: "BulkState"
    total: int | None
    before: int
    at: int
    is_resumed: bool = False
    started: float = field(default_factory=time.monotonic)
    points: deque[tuple[float, int]] = field(default_factory=deque)
    first: int = 0

    def __post_init__(self) -> None:
        self.first = self.at
        self.points.append((self.started, 0))

    @property
    def done(self) -> int:
        """Lines that are answered, written or not, or that cannot be asked."""
        return max(self.before, self.at + self.state.ahead)

    @property
    def mine(self) -> int:
        """Lines of them that this run has seen to."""
        found = self.first + self.state.found if self.is_resumed else 0
        return max(0, self.done - max(self.before, found))

    def rate(self) -> float:
        """Return lines a second over the last minute; note where this run is."""
        now, mine = time.monotonic(), self.mine
        self.points.append((now, mine))
        while len(self.points) > 2 and self.points[1][0] < now - RATE_S:
            self.points.popleft()
        at, then = self.points[0]
        return max(0, mine - then) / (now - at) if now > at else 0.0

    def describe(self) -> tuple[str, str]:
        """Return the lines done, of how many, and the rate, with the time left where it is known."""
        done, rate = self.done, self.rate()
        lines = count_lines(done) if self.total is None else f"{done:,} of {count_lines(self.total)}"
        left = "" if self.total is None or not rate else f" · {show_left((self.total - done) / rate)} left"
        return lines, f"{rate:,.0f}/s{left}"


@contextmanager
def following(
    meter: Meter, look: Callable[[], None], say: Callable[[str], None], console: Console, *, has_bar: bool
) -> Iterator[None]:
    """Show a bar, or say each minute how far it is; say on either if nothing was done since."""
    said = [meter.done]

    def report() -> None:
        look()
        lines, pace = meter.describe()
        if meter.done == said[0]:
            say(f"{lines} answered, no new ones; `corelane cores` shows the cores' states")
        elif not has_bar:
            say(f"{lines} answered, {pace}")
        said[0] = meter.done

    with ExitStack() as stack:
        if has_bar:
            known = (BarColumn(BAR_CHARS), TaskProgressColumn()) if meter.total else ()
            columns = (TextColumn("{task.description}"), *known, TextColumn("{task.fields[pace]}"))
            bar = stack.enter_context(Progress(*columns, console=console, transient=True))
            lines, pace = meter.describe()
            task = bar.add_task(lines, total=meter.total, completed=meter.done, pace=pace)

            def show() -> None:
                look()
                lines, pace = meter.describe()
                bar.update(task, description=lines, completed=meter.done, pace=pace)

            stack.enter_context(reporting(show, LOOK_S))
        stack.enter_context(reporting(report))
        yield


def count_ahead(source: BinaryIO, number: Callable[[Iterable[bytes]], Iterator[object]]) -> int | None:
    """Return how many lines a file has that are not blank, and go back to its beginning; None for a pipe."""
    if not stat.S_ISREG(fstat(source.fileno()).st_mode):
        return None
    begin = source.tell()
    count = sum(1 for _ in number(source))
    source.seek(begin)
    return count


def count_lines(count: int) -> str:
    """Return a number of lines in words."""
    return f"{count:,} line" if count == 1 else f"{count:,} lines"


def show_left(seconds: float) -> str:
    """Return a time that is left as h:mm:ss."""
    return str(timedelta(seconds=round(seconds)))
