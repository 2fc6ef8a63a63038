"""``corelane batch``: questions, one JSON object a line or a CSV, answered into results in the same order.

Each result is the wire's, with ``index`` the line's position in the input, counted from 0; blank lines have none. An
output file always begins with whole, final lines, so an interrupted run resumes where its output ends, and jobs that
the service still works on are not asked again: each line is answered once, whatever stopped the run. Lines that cannot
be asked get a failed result; exit code 2 if any result failed. ``-`` is standard input or output.
"""

import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from corelane.cli.by_reference import answer_by_reference, as_url
from corelane.cli.csv_lines import number_rows, read_output_rows, write_header, write_row
from corelane.cli.dry_run import DryRunOption, describe, forecast_questions, unanswered
from corelane.cli.jsonl import (
    NumberedLine,
    OutputState,
    answer_lines,
    number_lines,
    read_line,
    read_output,
    refuse_batches,
    skip_answered,
    write_line,
)
from corelane.cli.options import AnswerOptions, PriorityOption
from corelane.cli.output import error_console, print_one
from corelane.cli.resume import RunFile, open_run
from corelane.cli.service import KeyOption, ModelOption, UrlOption, connect
from corelane.cli.waiting import WaitNotice, reporting
from corelane.domain.jobs import Item, Priority, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.endpoints import JobParts

#: Retries of a call, over some four minutes: a long run outlives a restart of the service.
MAX_RETRIES = 12

#: Standard input or output, where a file is asked for.
STANDARD = Path("-")


@dataclass(frozen=True, slots=True)
class Format:
    """How questions are read and results written."""

    number: Callable[[Iterable[bytes]], Iterator[NumberedLine]]
    read_output: Callable[[Iterable[bytes]], OutputState]
    header: bytes
    write: Callable[[dict[str, Any]], bytes]


JSON_LINES = Format(number_lines, read_output, b"", write_line)
CSV = Format(number_rows, read_output_rows, write_header(), write_row)


def batch(
    options: AnswerOptions,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="[QUESTIONS.jsonl]",
            help="Lines with question, context, id; - is standard input; s3://… or https://… is read by the service.",
        ),
    ] = STANDARD,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where results go; an interrupted run resumes an existing file.")
    ] = STANDARD,
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    priority: PriorityOption = Priority.NORMAL,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs in flight at a time.")] = 4,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over, dropping an existing output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Read and write CSV with a header, not lines of JSON.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, on standard error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Answer a file of questions; run it again to resume after an interruption."""
    console = error_console()
    notice = WaitNotice(console, quiet)
    if (asked := as_url(questions)) is not None:
        if dry_run or as_csv or overwrite:
            raise InvalidInput("questions at a URL are read by the service: leave out --dry-run, --csv and --overwrite")
        with connect(url, api_key, max_retries=MAX_RETRIES, on_wait=notice) as client:
            parts: JobParts = {"input_url": asked, "model": model, "options": options, "priority": priority}
            is_whole = answer_by_reference(client, parts, output, None if quiet else console, as_json=as_json)
        if not is_whole:
            raise typer.Exit(2)
        return
    with _file_errors(), connect(url, api_key, max_retries=MAX_RETRIES, on_wait=notice) as client:
        if questions == STANDARD and sys.stdin.isatty():
            raise InvalidInput("name a file of questions, or send them to standard input: corelane batch < FILE")
        is_same = questions != STANDARD and output != STANDARD and output.exists() and questions.samefile(output)
        if is_same or (output != STANDARD and output.exists() and not output.is_file()):
            raise InvalidInput(f"{output} cannot be the output: it must be a file, and not that of the questions")
        run = BulkRun(
            client=client,
            api_key=api_key,
            model=model,
            options=options,
            priority=priority,
            jobs=jobs,
            format=CSV if as_csv else JSON_LINES,
            output=None if output == STANDARD else output,
            console=console,
            quiet=quiet,
            as_json=as_json,
        )
        opened = nullcontext(sys.stdin.buffer) if questions == STANDARD else questions.open("rb")
        if dry_run:
            with opened as source:
                run.forecast(source, overwrite)
            return
        with opened as source, _open_output(output, overwrite) as sink:
            kept = run.answer(source, sink)
    if kept.failed:
        raise typer.Exit(2)


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SetupError(f"{where}{error.strerror or error}") from None


@contextmanager
def _open_output(path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """Open the output for reading and appending, locked against other runs."""
    import fcntl

    if path == STANDARD:
        yield sys.stdout.buffer
        return
    with path.open("a+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another `corelane batch` is writing {path}") from None
        if overwrite:
            sink.truncate(0)
            open_run(path, None, 0).remove()
        sink.seek(0)
        yield sink


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One run of the command; ``output`` is None where it cannot be resumed."""

    client: "Client"
    api_key: str | None = field(repr=False)
    model: str
    options: dict[str, Any]
    priority: Priority
    jobs: int
    format: Format
    output: Path | None
    console: Console
    quiet: bool
    as_json: bool

    def answer(self, source: BinaryIO, sink: BinaryIO) -> OutputState:
        """Answer the lines that the output lacks, writing whole lines; return the output's state at the end."""
        raw_lines = refuse_batches(self.format.number(source))
        kept = self.format.read_output(sink) if self.output is not None else OutputState()
        run = open_run(self.output, [self.model, self.options], kept.lines)
        again = skip_answered(raw_lines, kept, run.lines)
        if self.output is not None:
            sink.truncate(kept.size_bytes)
        if not kept.size_bytes:
            sink.write(self.format.header)
            kept.size_bytes = len(self.format.header)
        if kept.lines:
            self._say(f"resuming after {count_lines(kept.lines)} answered before")
        before, started = kept.lines, time.monotonic()
        try:
            self._write(chain(again, raw_lines), sink, kept, run, size_of(source))
            sink.flush()
        except (KeyboardInterrupt, CorelaneError, OSError):
            how = "; run it again, without --overwrite, to resume" if self.output is not None else ""
            self._say(f"stopped: {count_lines(kept.lines)} answered{how}")
            raise
        run.remove()
        elapsed_s = time.monotonic() - started
        if self.as_json:
            data = figures(kept, kept.lines - before, elapsed_s)
            self.console.print_json(data=data, indent=None, highlight=False)
        else:
            self._say(summary(kept, kept.lines - before, elapsed_s))
        return kept

    def forecast(self, source: BinaryIO, overwrite: bool) -> None:
        """Print what the lines that the output lacks would take; nothing is asked or written."""
        kept = OutputState()
        if self.output is not None and self.output.exists() and not overwrite:
            with self.output.open("rb") as before:
                kept = self.format.read_output(before)
        lines = unanswered(map(read_line, refuse_batches(self.format.number(source))), kept)
        found, bad = forecast_questions(self.client, lines, self.model, self.options, self.priority)
        print_one(found, self.as_json, describe)
        if bad:
            self._say(f"{count_lines(bad)} cannot be asked")

    def _write(
        self,
        raw_lines: Iterator[NumberedLine],
        sink: BinaryIO,
        kept: OutputState,
        run: RunFile,
        size_bytes: int | None,
    ) -> None:
        """Ask the lines from the run's beginning on, and write those that the output lacks."""
        before, at, started = kept.lines, run.lines, time.monotonic()

        def reached(items: int) -> None:
            run.lines, run.items = at, items
            run.write()

        answers = answer_lines(map(read_line, raw_lines), partial(self._ask, run, reached))
        reports = reporting(partial(self._report, kept, [before]))
        with closing(answers), _progress(self.console, size_bytes, self.quiet) as progress, reports:
            task = progress.add_task("", total=size_bytes, rate=0.0)
            for line, result in answers:
                at += 1
                if at > before:
                    plain = result.model_dump(mode="json")
                    text = self.format.write(plain)
                    sink.write(text)
                    sink.flush()
                    kept.add(plain, len(text))
                rate = (kept.lines - before) / (time.monotonic() - started)
                progress.update(task, completed=line.end_bytes, description=count_lines(kept.lines), rate=rate)

    def _ask(
        self, run: RunFile, reached: Callable[[int], None], items: Iterator[Item]
    ) -> Generator[Result, None, None]:
        """Yield the results of items; report at once if the service is away at the start, but be patient later."""
        from corelane.client.bulk import NamedRun, answer_all

        first = next(items, None)
        if first is None:
            return
        with connect(self.client.base_url, self.api_key, max_retries=2) as hasty:
            hasty.models()
        yield from answer_all(
            self.client,
            chain([first], items),
            model=self.model,
            options=self.options,
            priority=self.priority,
            jobs_in_flight=self.jobs,
            run=None if run.path is None else NamedRun(run.name, run.items, reached),
        )

    def _report(self, kept: OutputState, said: list[int]) -> None:
        """Report the progress where no bar shows it, and everywhere if there was none since the last report."""
        if kept.lines == said[0]:
            self._say(f"{count_lines(kept.lines)} answered, none lately; `corelane cores` shows the cores' states")
        elif not self.console.is_terminal:
            self._say(f"{count_lines(kept.lines)} answered")
        said[0] = kept.lines

    def _say(self, sentence: str) -> None:
        if not self.quiet:
            self.console.print(sentence)


def size_of(source: BinaryIO) -> int | None:
    """Return the size of a source in bytes; None for a pipe, whose size is not known."""
    status = fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _progress(console: Console, size_bytes: int | None, quiet: bool) -> Progress:
    """Return a bar with the share and the time left where the size is known; else the count and the rate."""
    known = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if size_bytes else ()
    columns = (TextColumn("{task.description}"), *known, TextColumn("{task.fields[rate]:,.0f}/s"))
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def figures(kept: OutputState, answered: int, elapsed_s: float) -> dict[str, Any]:
    """Return the summary as plain data."""
    return {
        "lines": kept.lines,
        "without_answer": kept.without_answer,
        "failed": kept.failed,
        "answered_now": answered,
        "seconds": round(elapsed_s, 3),
    }


def summary(kept: OutputState, answered: int, elapsed_s: float) -> str:
    """Return the summary as a line."""
    rate = f" · {answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    found = kept.lines - kept.failed - kept.without_answer
    counts = {"answered": found, "without an answer": kept.without_answer, "failed": kept.failed}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{count_lines(kept.lines)}{': ' if said else ''}{said}{rate}"


def count_lines(count: int) -> str:
    """Return a number of lines in words."""
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
