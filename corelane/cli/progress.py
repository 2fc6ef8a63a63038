"""The progress of a run over lines: those done in all jobs in flight, the rate of this run, and the time left."""

import stat
import time
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

#: Time between two looks at the jobs in flight, in seconds.
LOOK_S = 1.0

#: Width of the bar, in columns; the whole line fits into 80.
BAR_CHARS = 20


@dataclass(slots=True)
class Meter:
    """Counts the lines of one run. ``before`` lines were in the output when it began; ``at`` have been read by now.

    A line is done once the service has finished it, though its result may not be written yet: results are read in the
    order of the lines. Lines of an earlier run count as done, but not in the rate. ``is_resumed`` says that an earlier
    run may have submitted some of the jobs in flight.
    """

    state: "BulkState"
    total: int | None
    before: int
    at: int
    is_resumed: bool = False
    started: float = field(default_factory=time.monotonic)
    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.at

    @property
    def done(self) -> int:
        """Lines that are answered, written or not, and lines that cannot be asked."""
        return max(self.before, self.at + self.state.ahead)

    @property
    def rate(self) -> float:
        """Lines per second that this run has done."""
        found = self.first + self.state.found if self.is_resumed else 0
        return max(0, self.done - max(self.before, found)) / (time.monotonic() - self.started)

    def describe(self) -> tuple[str, str]:
        """Return two texts: the lines done out of the total, and the rate, with the time left if it is known."""
        done, rate = self.done, self.rate
        lines = count_lines(done) if self.total is None else f"{done:,} of {count_lines(self.total)}"
        if self.total is None or not rate:
            return lines, f"{rate:,.0f}/s"
        return lines, f"{rate:,.0f}/s · {timedelta(seconds=round((self.total - done) / rate))} left"


@contextmanager
def following(
    meter: Meter, look: Callable[[], None], say: Callable[[str], None], console: Console, *, has_bar: bool
) -> Iterator[None]:
    """Show a bar, or else report the progress each minute. With a bar, report only minutes without a line done."""
    said = meter.done
    known = (BarColumn(BAR_CHARS), TaskProgressColumn()) if meter.total else ()
    columns = (TextColumn("{task.description}"), *known, TextColumn("{task.fields[pace]}"))
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=meter.total, pace="")

    def report() -> None:
        nonlocal said
        look()
        lines, pace = meter.describe()
        if meter.done == said:
            say(f"{lines} answered, no new ones; `corelane cores` shows the cores' states")
        elif not has_bar:
            say(f"{lines} answered, {pace}")
        said = meter.done

    def show() -> None:
        look()
        lines, pace = meter.describe()
        bar.update(task, description=lines, completed=meter.done, pace=pace)

    with ExitStack() as stack:
        if has_bar:
            show()
            stack.enter_context(bar)
            stack.enter_context(reporting(show, LOOK_S))
        stack.enter_context(reporting(report))
        yield


def count_ahead(source: BinaryIO, number: Callable[[Iterable[bytes]], Iterator[object]]) -> int | None:
    """Return the number of lines of a file that are not blank, and go back to its beginning; None for a pipe."""
    if not stat.S_ISREG(fstat(source.fileno()).st_mode):
        return None
    begin = source.tell()
    count = sum(1 for _ in number(source))
    source.seek(begin)
    return count


def count_lines(count: int) -> str:
    """Return a number of lines in words."""
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
