"""``corelane batch``: questions, one JSON object a line or a CSV, answered into results in the same order.

Each result is the wire's, with ``index`` the line's position in the input, counted from 0; blank lines have none. An
output file always begins with whole, final lines, so an interrupted run goes on where its output ends, and what the
service had under way then is not asked again: each line is answered once, whatever stopped the run. Lines that cannot
be asked get a failed result; exit code 2 if any result failed. ``-`` is standard input or output.
"""

import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from corelane.cli.csv_lines import number_rows, read_kept_rows, write_header, write_row
from corelane.cli.errors import exit_on_error
from corelane.cli.jsonl import (
    Kept,
    RawLine,
    answer_lines,
    number_lines,
    read_kept,
    read_line,
    refuse_batches,
    skip_kept,
    write_line,
)
from corelane.cli.options import (
    AlwaysOption,
    MaxTokensOption,
    OffsetsOption,
    PrecisionOption,
    PriorityOption,
    StrideOption,
    ThresholdOption,
    TopKOption,
    answer_options,
)
from corelane.cli.resume import RunFile, open_run
from corelane.cli.service import KeyOption, ModelOption, UrlOption, connect
from corelane.cli.waiting import Pulse, Waiting
from corelane.domain.jobs import Item, Priority, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError

if TYPE_CHECKING:
    from corelane.client import Client

#: A long run outlives a restart of the service: this often, over some four minutes, a call is tried again.
MAX_RETRIES = 12


#: Standard input or output, where a file is asked for.
STANDARD = Path("-")


@dataclass(frozen=True, slots=True)
class Format:
    """How questions are read and results written."""

    number: Callable[[Iterable[bytes]], Iterator[RawLine]]
    kept: Callable[[Iterable[bytes]], Kept]
    header: bytes
    write: Callable[[dict[str, Any]], bytes]


JSON_LINES = Format(number_lines, read_kept, b"", write_line)
CSV = Format(number_rows, read_kept_rows, write_header(), write_row)


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask every line with."""

    model: str
    options: dict[str, Any]
    priority: Priority
    jobs: int
    api_key: str | None = field(repr=False)


def batch(
    questions: Annotated[
        Path, typer.Argument(metavar="[QUESTIONS.jsonl]", help="Lines with question, context, id; - is standard input.")
    ] = STANDARD,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where results go; a file is gone on with if it exists.")
    ] = STANDARD,
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    priority: PriorityOption = Priority.NORMAL,
    top_k: TopKOption = None,
    max_answer_tokens: MaxTokensOption = None,
    doc_stride: StrideOption = None,
    threshold: ThresholdOption = None,
    min_precision: PrecisionOption = None,
    offsets: OffsetsOption = None,
    always_answer: AlwaysOption = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs under way at a time.")] = 4,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew, dropping an existing output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Read and write CSV with a header, not lines of JSON.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, on standard error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
) -> None:
    """Answer a file of questions; run it again to go on after an interruption."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    waiting = Waiting(console, quiet)
    with exit_on_error(), _file_errors(), connect(url, api_key, max_retries=MAX_RETRIES, waiting=waiting) as client:
        if questions == STANDARD and sys.stdin.isatty():
            raise InvalidInput("name a file of questions, or send them to standard input: corelane batch < FILE")
        if output != STANDARD and output.exists() and (not output.is_file() or _is_same(questions, output)):
            raise InvalidInput(f"{output} cannot be the output: it must be a file, and another than the questions")
        options = answer_options(
            top_k=top_k,
            max_answer_tokens=max_answer_tokens,
            doc_stride=doc_stride,
            threshold=threshold,
            min_precision=min_precision,
            offsets=offsets,
            always_answer=always_answer,
        )
        request = Request(model, options, priority, jobs, api_key)
        shape = CSV if as_csv else JSON_LINES
        with _open_questions(questions) as source, _open_output(output, overwrite) as sink:
            batch = Batch(client, request, shape, None if output == STANDARD else output, console, quiet, as_json)
            kept = batch.answer(source, sink)
    if kept.failed:
        raise typer.Exit(2)


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SetupError(f"{where}{error.strerror or error}") from None


def _is_same(questions: Path, output: Path) -> bool:
    return questions != STANDARD and questions.samefile(output)


@contextmanager
def _open_questions(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    with path.open("rb") as source:
        yield source


@contextmanager
def _open_output(path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """The output, open for reading and appending, and nobody else's meanwhile."""
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


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of the command; ``output`` is None where it cannot be gone on with."""

    client: "Client"
    request: Request
    shape: Format
    output: Path | None
    console: Console
    quiet: bool = False
    as_json: bool = False

    def answer(self, source: BinaryIO, sink: BinaryIO) -> Kept:
        """Answer what the output does not hold yet, a whole line at a time; what it holds in the end."""
        raw_lines = refuse_batches(self.shape.number(source))
        kept = self.shape.kept(sink) if self.output is not None else Kept()
        run = open_run(self.output, [self.request.model, self.request.options], kept.lines)
        skipped = skip_kept(raw_lines, kept, run.lines)
        if self.output is not None:
            sink.truncate(kept.size_bytes)
        if not kept.size_bytes:
            sink.write(self.shape.header)
            kept.size_bytes = len(self.shape.header)
        if kept.lines:
            self._say(f"going on after {count_lines(kept.lines)} answered before")
        before, started = kept.lines, time.monotonic()
        try:
            self._write(chain(skipped, raw_lines), sink, kept, run, size_of(source))
            sink.flush()
        except (KeyboardInterrupt, CorelaneError, OSError):
            on = "; run it again, without --overwrite, to go on" if self.output is not None else ""
            self._say(f"stopped: {count_lines(kept.lines)} answered{on}")
            raise
        run.remove()
        elapsed_s = time.monotonic() - started
        if self.as_json:
            data = figures(kept, kept.lines - before, elapsed_s)
            self.console.print_json(data=data, indent=None, highlight=False)
        else:
            self._say(summary(kept, kept.lines - before, elapsed_s))
        return kept

    def _write(
        self, raw_lines: Iterator[RawLine], sink: BinaryIO, kept: Kept, run: RunFile, size_bytes: int | None
    ) -> None:
        """Ask the lines from where the run begins, and write those that the output does not hold yet."""
        before, at, started = kept.lines, run.lines, time.monotonic()

        def reached(items: int) -> None:
            run.lines, run.items = at, items
            run.write()

        answers = answer_lines(map(read_line, raw_lines), partial(_ask, self.client, self.request, run, reached))
        pulse = Pulse(partial(self._tell, kept, [before]))
        with closing(answers), _progress(self.console, size_bytes, self.quiet) as progress, pulse:
            task = progress.add_task("", total=size_bytes, rate=0.0)
            for line, result in answers:
                at += 1
                if at > before:
                    plain = result.model_dump(mode="json")
                    text = self.shape.write(plain)
                    sink.write(text)
                    sink.flush()
                    kept.add(plain, len(text))
                rate = (kept.lines - before) / (time.monotonic() - started)
                progress.update(task, completed=line.end_bytes, description=count_lines(kept.lines), rate=rate)

    def _tell(self, kept: Kept, told: list[int]) -> None:
        """Say how far the run is: where no bar shows it, and wherever nothing was answered since the last time."""
        if kept.lines == told[0]:
            self._say(f"{count_lines(kept.lines)} answered, none lately; `corelane cores` says how the cores are")
        elif not self.console.is_terminal:
            self._say(f"{count_lines(kept.lines)} answered")
        told[0] = kept.lines

    def _say(self, sentence: str) -> None:
        if not self.quiet:
            self.console.print(sentence)


def size_of(source: BinaryIO) -> int | None:
    """The bytes a source holds, or None for a pipe, which does not say."""
    status = fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _ask(
    client: "Client", request: Request, run: RunFile, reached: Callable[[int], None], items: Iterator[Item]
) -> Generator[Result, None, None]:
    """Patient once it has begun; a service that is not there to begin with is reported at once."""
    from corelane.client.bulk import Run, answer_all

    first = next(items, None)
    if first is None:
        return
    with connect(client.base_url, request.api_key, max_retries=2) as hasty:
        hasty.models()
    yield from answer_all(
        client,
        chain([first], items),
        model=request.model,
        options=request.options,
        priority=request.priority,
        jobs_in_flight=request.jobs,
        run=None if run.path is None else Run(run.name, run.items, reached),
    )


def _progress(console: Console, size_bytes: int | None, quiet: bool) -> Progress:
    """A bar, the share and the time left where the size is known; else the count and the rate."""
    known = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if size_bytes else ()
    columns = (TextColumn("{task.description}"), *known, TextColumn("{task.fields[rate]:,.0f}/s"))
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def figures(kept: Kept, answered: int, elapsed_s: float) -> dict[str, Any]:
    """What became of the questions, as plain data."""
    return {
        "lines": kept.lines,
        "without_answer": kept.without_answer,
        "failed": kept.failed,
        "answered_now": answered,
        "seconds": round(elapsed_s, 3),
    }


def summary(kept: Kept, answered: int, elapsed_s: float) -> str:
    """Say what became of the questions, in a line."""
    rate = f" · {answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    found = kept.lines - kept.failed - kept.without_answer
    counts = {"answered": found, "without an answer": kept.without_answer, "failed": kept.failed}
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{count_lines(kept.lines)}{': ' if told else ''}{told}{rate}"


def count_lines(count: int) -> str:
    """Return a number of lines in words."""
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
