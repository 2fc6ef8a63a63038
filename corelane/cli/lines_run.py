"""Lines of items sent in jobs, and their results written in the same order: what ``corelane run`` and ``batch`` share.

Each result is the API's, with two more fields: ``index``, the line's position in the input, counted from 0, and the
``model`` version that was asked. Blank lines have no result. Lines that cannot be sent get a failed result. ``-`` is
standard input or output.

An output file always begins with complete, final lines, so an interrupted run resumes where its output ends. A small
file beside it has the run's name and options. By the name, jobs that the service still works on, or has finished since,
are found again and not asked twice. A resume with other options is refused. Without that file, lines that are not in
the output are asked again. Items at a URL are read by the service, in one job.
"""

import secrets
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
from rich.console import Console

from corelane.cli.item_lines import OutputState, read_line, read_output, results_of, skip_answered, write_line
from corelane.cli.progress import LOOK_S, Meter, count_lines, following
from corelane.cli.run_output import RunFile, RunOutput
from corelane.cli.service import LONG_PATIENCE_S, connect
from corelane.cli.tables.forms import STANDARD, Contents, Form, form_of
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import EarlierIds, Item, JobStatus, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.tasks.task import Task

if TYPE_CHECKING:
    from corelane.cli.tables.reading import Source
    from corelane.client import Client
    from corelane.client.bulk import BulkState
    from corelane.client.endpoints import JobParts


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesRun:
    """One run of a command over its lines: where they are, and what is asked with all of them."""

    task: Task
    parts: "JobParts"
    source: Path
    output: Path
    url: str | None
    jobs: int
    overwrite: bool
    console: Console
    quiet: bool
    #: The model as the service describes it, where it was asked.
    info: Mapping[str, Any] = field(default_factory=dict)
    #: Columns of a table by another name, as FIELD=COLUMN.
    mapped: Sequence[str] = ()
    #: How a result is written on standard output.
    show: Callable[[dict[str, Any]], bytes] = write_line
    #: Whether the summary is printed as JSON.
    as_json: bool = False
    #: What options of a job are called on the command line, where that is another name.
    names: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> bool:
        """Send the lines; return whether no result failed."""
        from corelane.cli.tables.reading import open_source
        from corelane.cli.tables.writing import check_output

        notice = WaitNotice(self.console, self.quiet)
        with _file_errors(), connect(self.url, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
            if (asked := as_url(self.source)) is not None:
                return self._run_by_reference(client, asked)
            check_files(self.source, self.output)
            check_output(form_of(self.output).contents, self.task, self.info)
            reading = open_source(self.source, self.task, self.info, self.mapped)
            with reading as source, self._output.open() as sink:
                before = None if self.overwrite else self._output.joined_before(sink, self._asks, source, self.names)
                if before is not None:
                    return self._summarize(before, 0, 0.0)
                kept, meter = self._send(client, source, sink)
                if self._output.is_joined:
                    self._say(f"writing {self.output}")
                    self._output.join(self.task, source, sink, kept)
                return self._summarize(kept, kept.lines - meter.before, time.monotonic() - meter.started)

    @property
    def _output(self) -> RunOutput:
        has_columns = form_of(self.source).contents is not Contents.LINES
        is_joined = self.output != STANDARD and (has_columns or form_of(self.output) != Form())
        return RunOutput(self.output, is_joined)

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

    def _send(self, client: "Client", source: "Source", sink: BinaryIO) -> tuple[OutputState, Meter]:
        """Send the lines that are not in the output yet, writing complete lines; return what it has now."""
        from corelane.client.bulk import BulkState

        has_file = self.output != STANDARD
        total = None if self.quiet else source.count()
        raw_lines = source.lines()
        kept = read_output(sink) if has_file and not self.overwrite else OutputState()
        run = self._open_run(kept.lines)
        again = skip_answered(self.task, raw_lines, kept, run.lines)
        if has_file:
            sink.truncate(kept.size_bytes)
        if kept.lines:
            self._say(f"resuming after {count_lines(kept.lines)} answered before")
        meter = Meter(BulkState(), total, kept.lines, run.lines, run.is_resumed)
        # If results go to the terminal, a bar would stand between them.
        has_bar = self.console.is_terminal and not self.quiet and (has_file or not sys.stdout.isatty())
        lines = map(partial(read_line, self.task, ids=EarlierIds()), chain(again, raw_lines))
        write = write_line if has_file else self.show
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
                        text = write(plain)
                        kept.add(plain, len(text))  # first: Ctrl-C takes effect after the flush, and the count is right
                        sink.write(text)
                        sink.flush()
        except (KeyboardInterrupt, CorelaneError, OSError):
            self._say(self._stopped(kept.lines, meter.state))
            raise
        return kept, meter

    def _summarize(self, kept: OutputState, answered: int, elapsed_s: float) -> bool:
        """Print what the output has; return whether no result failed."""
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
        run = None if self.overwrite else self._output.read_run()
        if kept_lines and run is not None:
            run.require_same(self._asks, self.output, self.names)
        if run is not None and run.asks == self._asks and 0 <= run.lines <= kept_lines:
            return run
        run = RunFile(self._output.run_path, self._asks, f"batch-{secrets.token_hex(6)}", kept_lines)
        run.write()
        return run

    @property
    def _parts(self) -> "JobParts":
        """The parts of each job. An item that only the service can refuse fails alone."""
        options: Any = self.parts["options"]
        packed = self.task.packed if form_of(self.output).contents in (Contents.PARQUET, Contents.NPY) else {}
        return {**self.parts, "invalid_items": "fail", "options": {**packed, **(options or {})}}

    @property
    def _asks(self) -> dict[str, Any]:
        """What is asked with each item."""
        mapped = {"map": sorted(self.mapped)} if self.mapped else {}
        asks: dict[str, Any] = orjson.loads(orjson.dumps({**self.parts, **mapped, "options": self._parts["options"]}))
        return asks | asks.pop("options")

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
            **self._parts,
        )

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
        if self.mapped or (as_url(self.output) is None and form_of(self.output) != Form()):
            raise InvalidInput("items at a URL are lines that the service reads: leave out --map, and write .jsonl")
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
