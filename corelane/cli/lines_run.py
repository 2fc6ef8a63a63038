"""Lines of items sent in jobs, and their results written in the same order: what ``corelane run`` and ``batch`` share.

Each result is the API's, with two more fields: ``index``, the line's position in the input, counted from 0, and the
``model`` version that was asked. Blank lines have no result. An output file always begins with complete, final lines,
so an interrupted run resumes where its output ends. Jobs that the service still works on are not submitted again. So
each line is sent once, whatever stopped the run. A resume with other options is refused. Lines that cannot be sent get
a failed result. ``-`` is standard input or output.
"""

import fcntl
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rich.console import Console

from corelane.cli.by_reference import STANDARD, as_url, is_whole, run_by_reference
from corelane.cli.by_reference import summary as summary_of_job
from corelane.cli.item_lines import (
    LineFormat,
    NumberedLine,
    OutputState,
    read_line,
    read_output,
    refuse_others,
    results_of,
    skip_answered,
)
from corelane.cli.progress import Meter, count_ahead, count_lines, following
from corelane.cli.resume import RunFile, open_run
from corelane.cli.service import LONG_PATIENCE_S, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import EarlierIds, Item, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.tasks.task import Task

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.bulk import BulkState
    from corelane.client.endpoints import JobParts


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesRun:
    """One run of a command over its lines: where they are and in which form, and what is asked with all of them."""

    task: Task
    parts: "JobParts"
    source: Path
    output: Path
    read: LineFormat
    write: LineFormat
    url: str | None
    api_key: str | None
    jobs: int
    overwrite: bool
    report: "RunReport"
    #: What options of a job are called on the command line, where that is another name.
    names: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> bool:
        """Send the lines; return whether no result failed."""
        notice = WaitNotice(self.report.console, self.report.quiet)
        with _file_errors(), connect(self.url, self.api_key, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
            if (asked := as_url(self.source)) is not None:
                if self.overwrite:
                    raise InvalidInput("items at a URL are read by the service: leave out --overwrite")
                job = run_by_reference(client, {**self.parts, "input_url": asked}, self.output, self.report.say)
                self.report.end(job.model_dump(mode="json", exclude={"results"}), summary_of_job(job))
                return is_whole(job)
            check_files(self.source, self.output)
            opened = nullcontext(sys.stdin.buffer) if self.source == STANDARD else self.source.open("rb")
            with opened as source:
                return self._send(client, source)

    def _send(self, client: "Client", source: BinaryIO) -> bool:
        """Send the lines that are not in the output yet, writing complete lines; return whether no line failed."""
        from corelane.client.bulk import BulkState

        output = None if self.output == STANDARD else self.output
        with _open_output(output) as sink:
            total = None if self.report.quiet else count_ahead(source, self.read.number)
            raw_lines = refuse_others(self.task, self.read.number(source))
            kept = OutputState() if self.output == STANDARD or self.overwrite else read_output(sink, self.write)
            run = open_run(output, self._asks(), kept.lines, self.names, overwrite=self.overwrite)
            again = skip_answered(self.task, raw_lines, kept, run.lines)
            if output is not None:
                sink.truncate(kept.size_bytes)
            if not kept.size_bytes:
                sink.write(self.write.header)
                kept.size_bytes = len(self.write.header)
            if kept.lines:
                self.report.say(f"resuming after {count_lines(kept.lines)} answered before")
            state = BulkState(spend=run.spend)
            meter = Meter(state, total, kept.lines, run.lines, run.is_resumed)
            try:
                self._write(client, chain(again, raw_lines), sink, kept, run, meter)
                sink.flush()
            except (KeyboardInterrupt, CorelaneError, OSError):
                self.report.say(self._stopped(self._count_written(sink, kept), state))
                raise
        elapsed_s, answered = time.monotonic() - meter.started, kept.lines - meter.before
        measured = kept, answered, elapsed_s, run, self.task.output
        self.report.end(figures(*measured), summary(*measured))
        return not kept.failed

    def _asks(self) -> dict[str, Any]:
        """Return the options that all lines are asked with, by the names of options."""
        head: dict[str, Any] = {name: value for name, value in self.parts.items() if name != "options"}
        options: Any = self.parts["options"]
        return head | (options or {})

    def _write(
        self,
        client: "Client",
        raw_lines: Iterable[NumberedLine],
        sink: BinaryIO,
        kept: OutputState,
        run: RunFile,
        meter: Meter,
    ) -> None:
        """Ask ``raw_lines``, which begin where the run does, and write the results that are not in the output yet."""
        # If results go to the terminal, a bar would stand between them.
        has_bar = self.report.console.is_terminal and not self.report.quiet
        has_bar = has_bar and not (self.output == STANDARD and sys.stdout.isatty())
        with connect(self.url, self.api_key, patience_s=0) as looker:
            look = partial(meter.state.look, looker)
            results = results_of(
                self.task,
                map(partial(read_line, self.task, ids=EarlierIds()), raw_lines),
                partial(self._ask, client, run, meter),
            )
            progress = following(meter, look, self.report.say, self.report.console, has_bar=has_bar)
            with closing(results), progress:
                for result in results:
                    meter.at += 1
                    if meter.at > meter.before:
                        plain = result.model_dump(mode="json")
                        text = self.write.write(plain)
                        kept.add(plain, len(text))
                        sink.write(text)
                        sink.flush()

    def _count_written(self, sink: BinaryIO, kept: OutputState) -> int:
        """Return how many lines the output has. The last line is left out if not all of it was written."""
        if self.output == STANDARD:
            return kept.lines
        with suppress(OSError):
            sink.flush()
        return kept.lines - (fstat(sink.fileno()).st_size < kept.size_bytes)

    def _ask(
        self, client: "Client", run: RunFile, meter: Meter, items: Iterator[Item]
    ) -> Generator[Result, None, None]:
        """Yield the results of items. Fails at once if the service cannot be reached at the start; later it waits."""
        from corelane.client.bulk import NamedRun, run_all

        def reached(items: int) -> None:
            run.lines, run.items = meter.at, items
            run.write()

        first = next(items, None)
        if first is None:
            return
        if not run.is_resumed:
            with connect(self.url, self.api_key, on_wait=WaitNotice(self.report.console, quiet=True)) as hasty:
                hasty.models()
        yield from run_all(
            client,
            chain([first], items),
            jobs_in_flight=self.jobs,
            run=None if run.path is None else NamedRun(run.name, run.items, reached),
            state=meter.state,
            **self.parts,
        )

    def _stopped(self, lines: int, state: "BulkState") -> str:
        """Return what is done, which jobs the service still works on, and how to resume or stop them."""
        resume, go_on, stop = "", "", ""
        where = (f" --url {self.url}" if self.url else "") + (" --api-key …" if self.api_key else "")
        if self.output != STANDARD:
            resume = "\n  to resume: run the same command again, without --overwrite"
        if count := len(state.jobs):
            jobs, are = ("1 job goes", "is") if count == 1 else (f"{count} jobs go", "are")
            go_on = f"\n  {jobs} on at the service and {are} charged: {count_lines(state.open)} not answered yet"
            stop = "\n  to stop that:" + "".join(f"\n    corelane jobs cancel {job.id}{where}" for job in state.jobs)
        return f"stopped: {count_lines(lines)} answered{go_on}{resume}{stop}"


def check_files(source: Path, output: Path) -> None:
    """Raise InvalidInput if there is no input, or results cannot be written to the output."""
    if source == STANDARD and sys.stdin.isatty():
        raise InvalidInput("name a file of lines, or send them to standard input, as by < FILE")
    if output == STANDARD or not output.exists():
        return
    if not output.is_file() or (source != STANDARD and source.samefile(output)):
        raise InvalidInput(f"{output} cannot be the output: it must be a file, and not that of the input")


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SetupError(f"{where}{error.strerror or error}") from None


@contextmanager
def _open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open the output for reading and appending, locked against other runs."""
    if path is None:
        yield sys.stdout.buffer
        return
    with path.open("a+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another command is writing {path}") from None
        sink.seek(0)
        yield sink


@dataclass(frozen=True, slots=True)
class RunReport:
    """What the command prints on standard error."""

    console: Console
    quiet: bool
    as_json: bool

    def say(self, sentence: str) -> None:
        """Print a line for the person who waits."""
        if not self.quiet:
            self.console.print(sentence)

    def end(self, figures: dict[str, Any], sentence: str) -> None:
        """Print the summary: its figures as JSON, or a sentence."""
        if self.as_json:
            self.console.print_json(data=figures, indent=None, highlight=False)
        else:
            self.say(sentence)


def figures(kept: OutputState, answered: int, elapsed_s: float, run: RunFile, output: str) -> dict[str, Any]:
    """Return the summary as plain data."""
    return {
        "lines": kept.lines,
        f"without_{output.split()[-1]}": kept.empty,
        "failed": kept.failed,
        "answered_now": answered,
        "seconds": round(elapsed_s, 3),
        "core_s": round(run.core_s, 6),
        "cost": run.cost and run.cost.model_dump(include={"amount", "currency"}),
    }


def summary(kept: OutputState, answered: int, elapsed_s: float, run: RunFile, output: str) -> str:
    """Return the summary: first the results by outcome, below them time and cost."""
    found = kept.lines - kept.failed - kept.empty
    counts = {"answered": found, f"without {output}": kept.empty, "failed": kept.failed}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    rate = f"{answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    cost = "" if run.cost is None else f"{run.cost.shown()} for all"
    below = " · ".join(filter(None, (rate, cost)))
    return f"{count_lines(kept.lines)}{': ' if said else ''}{said}" + (f"\n{below}" if below else "")
