"""Lines of items sent in jobs, and their results written in the same order: what ``corelane run`` and ``batch`` share.

Each result is the API's, with two more fields: ``index``, the line's position in the input, counted from 0, and the
``model`` version that was asked. Blank lines have no result. Lines that cannot be sent get a failed result. ``-`` is
standard input or output.

An output file always begins with complete, final lines, so an interrupted run resumes where its output ends. A small
file beside it has the run's name and options. By the name, jobs that the service still works on, or has finished since,
are found again and not asked twice. A resume with other options is refused. Without that file, lines that are not in
the output are asked again. Items at a URL are read by the service, in one job.
"""

import fcntl
import secrets
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
from rich.console import Console

from corelane.cli.item_lines import (
    LineFormat,
    OutputState,
    read_line,
    read_output,
    refuse_others,
    results_of,
    skip_answered,
)
from corelane.cli.progress import LOOK_S, Meter, count_ahead, count_lines, following
from corelane.cli.service import LONG_PATIENCE_S, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import EarlierIds, Item, JobStatus, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.tasks.task import Task

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.bulk import BulkState
    from corelane.client.endpoints import JobParts

STANDARD = Path("-")

#: The name of a run file is the name of its output with this ending.
SUFFIX = ".run"


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
    jobs: int
    overwrite: bool
    console: Console
    quiet: bool
    #: Whether the summary is printed as JSON.
    as_json: bool = False
    #: What options of a job are called on the command line, where that is another name.
    names: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> bool:
        """Send the lines; return whether no result failed."""
        notice = WaitNotice(self.console, self.quiet)
        with _file_errors(), connect(self.url, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
            if (asked := as_url(self.source)) is not None:
                return self._run_by_reference(client, asked)
            check_files(self.source, self.output)
            opened = nullcontext(sys.stdin.buffer) if self.source == STANDARD else self.source.open("rb")
            with opened as source, _open_output(self.output) as sink:
                return self._send(client, source, sink)

    def _say(self, sentence: str) -> None:
        """Print a line on standard error for a person who waits."""
        if not self.quiet:
            self.console.print(sentence)

    def _end(self, figures: dict[str, Any], sentence: str) -> None:
        """Print the summary."""
        if self.as_json:
            self.console.print_json(data=figures, indent=None, highlight=False)
        else:
            self._say(sentence)

    def _send(self, client: "Client", source: BinaryIO, sink: BinaryIO) -> bool:
        """Send the lines that are not in the output yet, writing complete lines; return whether no line failed."""
        from corelane.client.bulk import BulkState

        has_file = self.output != STANDARD
        total = None if self.quiet else count_ahead(source, self.read.number)
        raw_lines = refuse_others(self.task, self.read.number(source))
        kept = read_output(sink, self.write) if has_file and not self.overwrite else OutputState()
        run = self._open_run(kept.lines)
        again = skip_answered(self.task, raw_lines, kept, run.lines)
        if has_file:
            sink.truncate(kept.size_bytes)
        if not kept.size_bytes:
            sink.write(self.write.header)
            kept.size_bytes = len(self.write.header)
        if kept.lines:
            self._say(f"resuming after {count_lines(kept.lines)} answered before")
        meter = Meter(BulkState(), total, kept.lines, run.lines, run.is_resumed)
        # If results go to the terminal, a bar would stand between them.
        has_bar = self.console.is_terminal and not self.quiet and (has_file or not sys.stdout.isatty())
        lines = map(partial(read_line, self.task, ids=EarlierIds()), chain(again, raw_lines))
        try:
            with ExitStack() as stack:
                look = partial(meter.state.look, stack.enter_context(connect(self.url, patience_s=0)))
                results = stack.enter_context(
                    closing(results_of(self.task, lines, partial(self._ask, client, run, meter)))
                )
                stack.enter_context(following(meter, look, self._say, self.console, has_bar=has_bar))
                for result in results:
                    meter.at += 1
                    if meter.at > meter.before:
                        plain = result.model_dump(mode="json")
                        text = self.write.write(plain)
                        kept.add(plain, len(text))
                        sink.write(text)
                        sink.flush()
        except (KeyboardInterrupt, CorelaneError, OSError):
            self._say(self._stopped(self._count_written(sink, kept), meter.state))
            raise
        answered, elapsed_s = kept.lines - meter.before, time.monotonic() - meter.started
        counts = {"answered": kept.lines - kept.failed - kept.empty}
        counts |= {f"without {self.task.output}": kept.empty, "failed": kept.failed}
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        rate = f"\n{answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered else ""
        figures = {"lines": kept.lines, f"without_{self.task.output.split()[-1]}": kept.empty, "failed": kept.failed}
        self._end(
            figures | {"answered_now": answered, "seconds": round(elapsed_s, 3)},
            f"{count_lines(kept.lines)}{': ' if said else ''}{said}{rate}",
        )
        return not kept.failed

    def _open_run(self, kept_lines: int) -> "RunFile":
        """Return the run that the output belongs to, or a new one that begins after the lines it holds.

        Raises InvalidInput if the output was begun with other options.
        """
        options: Any = self.parts["options"]
        head = {name: value for name, value in self.parts.items() if name != "options"}
        asks = orjson.loads(orjson.dumps(head | (options or {})))
        path = None if self.output == STANDARD else self.output.with_name(self.output.name + SUFFIX)
        if path is not None and not self.overwrite:
            with suppress(FileNotFoundError, orjson.JSONDecodeError, TypeError):
                run = RunFile(path, **orjson.loads(path.read_bytes()), is_resumed=True)
                if kept_lines and (differ := differences(run.asks, asks, self.names)):
                    raise InvalidInput(
                        f"{self.output} was begun otherwise: {differ}. Resume it with what it was begun with, name "
                        "another output, or start over with --overwrite"
                    )
                if run.asks == asks and 0 <= run.lines <= kept_lines:
                    return run
        run = RunFile(path, asks, f"batch-{secrets.token_hex(6)}", kept_lines)
        run.write()
        return run

    def _ask(
        self, client: "Client", run: "RunFile", meter: "Meter", items: Iterator[Item]
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
            with connect(self.url, on_wait=WaitNotice(self.console, quiet=True)) as hasty:
                hasty.models()
        yield from run_all(
            client,
            chain([first], items),
            jobs_in_flight=self.jobs,
            run=None if run.path is None else NamedRun(run.name, run.items, reached),
            state=meter.state,
            **self.parts,
        )

    def _count_written(self, sink: BinaryIO, kept: OutputState) -> int:
        """Return how many lines the output has. The last line is left out if not all of it was written."""
        if self.output == STANDARD:
            return kept.lines
        with suppress(OSError):
            sink.flush()
        return kept.lines - (fstat(sink.fileno()).st_size < kept.size_bytes)

    def _stopped(self, lines: int, state: "BulkState") -> str:
        """Return what is done, which jobs the service still works on, and how to resume or stop them."""
        said = [f"stopped: {count_lines(lines)} answered"]
        if count := len(state.jobs):
            jobs = "1 job goes on at the service and is" if count == 1 else f"{count} jobs go on at the service and are"
            said.append(f"  {jobs} charged: {count_lines(state.open)} not answered yet")
        if self.output != STANDARD:
            said.append("  to resume: run the same command again, without --overwrite")
        if count:
            where = f" --url {self.url}" if self.url else ""
            said += ["  to stop that:", *(f"    corelane jobs cancel {job.id}{where}" for job in state.jobs)]
        return "\n".join(said)

    def _run_by_reference(self, client: "Client", source: str) -> bool:
        """Submit one job of the items at a URL; write its results to the output; return whether all was answered."""
        if self.overwrite:
            raise InvalidInput("items at a URL are read by the service: leave out --overwrite")
        target = as_url(self.output)
        if target is None and self.output != STANDARD and self.output.exists():
            raise InvalidInput(f"{self.output} exists: results of items at a URL go into a new file")
        parts: JobParts = {**self.parts, "input_url": source, "output_url": target}
        job = client.submit(**parts)
        self._say(f"{job.id}: follow it with `corelane jobs watch {job.id}`")
        if target is None:
            opened: Any = nullcontext(sys.stdout.buffer) if self.output == STANDARD else self.output.open("xb")
            with opened as sink:
                for result in client.iter_results(job.id):
                    sink.write(result.model_dump_json().encode() + b"\n")
                sink.flush()
        job = client.wait(job.id)
        while target is not None and job.output is not None and job.output.state in ("waiting", "writing"):
            time.sleep(LOOK_S)
            job = client.get(job.id)
        is_written = job.output is None or job.output.state == "written"
        said = [f"{job.status}: {job.counts.succeeded:,} of {job.counts.total:,} succeeded"]
        said += [] if job.error is None else [job.error.detail]
        if job.output is not None:
            said.append(f"results {job.output.state}" + (f": {job.output.error}" if job.output.error else ""))
        self._end(job.model_dump(mode="json", exclude={"results"}), "; ".join(said))
        return job.status is JobStatus.SUCCEEDED and job.counts.succeeded == job.counts.total and is_written


def as_url(path: Path) -> str | None:
    """Return the URL that was given as a path; None for a file. A path keeps only one of a URL's two slashes."""
    scheme, separator, rest = str(path).partition(":/")
    return f"{scheme}://{rest.lstrip('/')}" if separator and scheme in ("s3", "https", "http") else None


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
def _open_output(path: Path) -> Iterator[BinaryIO]:
    """Open the output for reading and appending, locked against other runs."""
    if path == STANDARD:
        yield sys.stdout.buffer
        return
    with path.open("a+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another command is writing {path}") from None
        sink.seek(0)
        yield sink


@dataclass(slots=True)
class RunFile:
    """A run: its options, its name, and the lines and items before its oldest unfinished job."""

    path: Path | None
    asks: dict[str, Any]
    name: str
    lines: int = 0
    items: int = 0
    #: Whether an earlier command began the run.
    is_resumed: bool = False

    def write(self) -> None:
        """Write the file to disk, completely or not at all."""
        if self.path is None:
            return
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_bytes(
            orjson.dumps({"asks": self.asks, "name": self.name, "lines": self.lines, "items": self.items})
        )
        temporary.replace(self.path)


def differences(before: Mapping[str, Any], now: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the options that differ, as they are typed on the command line."""
    shown = {"None": "not given", "[]": "not given", "False": "given"}
    values = {name: [str(each.get(name)) for each in (before, now)] for name in sorted({*before, *now})}
    return "; ".join(
        f"{names.get(name, '--' + name.replace('_', '-'))} was {shown.get(old, old)}, now it is {shown.get(new, new)}"
        for name, (old, new) in values.items()
        if old != new
    )
