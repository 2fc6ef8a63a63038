"""``corelane batch``: a file of questions, one JSON object a line, answered into a file of results in the same order.

Each result is the wire's, with ``index`` the line's position in the input, counted from 0; blank lines have none. The
output always begins with whole, final lines, so an interrupted run goes on where its output ends: each line is answered
once, whatever stopped the run. Lines that cannot be asked get a failed result; exit code 2 if any result failed.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from corelane.cli.errors import exit_on_error
from corelane.cli.jsonl import Kept, answer_lines, number_lines, read_kept, read_line, skip_kept, write_line
from corelane.cli.service import KeyOption, ModelOption, UrlOption, connect
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.jobs import Item, Priority, Result

if TYPE_CHECKING:
    from corelane.client import Client

#: A long run outlives a restart of the service: this often, over some four minutes, a call is tried again.
MAX_RETRIES = 12


class OffsetUnits(StrEnum):
    """What offsets may be counted in besides characters."""

    UTF16 = "utf16"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask every line with."""

    model: str
    options: dict[str, Any]
    priority: Priority
    jobs: int
    api_key: str | None = field(repr=False)


def batch(
    questions: Annotated[Path, typer.Argument(metavar="QUESTIONS.jsonl", help="Lines with question, context, id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where results go; gone on with if it exists.")],
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    priority: Annotated[Priority, typer.Option(help="Jobs of higher priority are answered first.")] = Priority.NORMAL,
    top_k: Annotated[int | None, typer.Option(min=1, max=20, help="Answers per line, best first.")] = None,
    max_answer_tokens: Annotated[int | None, typer.Option(min=1, max=128, help="Longest answer, in tokens.")] = None,
    doc_stride: Annotated[int | None, typer.Option(min=0, max=400, help="Overlap of windows, in tokens.")] = None,
    threshold: Annotated[
        float | None, typer.Option(min=-1000, max=1000, help="Null margin above which there is no answer.")
    ] = None,
    min_precision: Annotated[
        float | None, typer.Option(help="Give only answers whose score is at least this; the model must be calibrated.")
    ] = None,
    offsets: Annotated[
        list[OffsetUnits] | None, typer.Option(help="Units for offsets besides characters; may be repeated.")
    ] = None,
    always_answer: Annotated[bool, typer.Option("--always-answer", help="Never answer with null.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs under way at a time.")] = 4,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew, dropping an existing output.")] = False,
) -> None:
    """Answer a file of questions; run it again to go on after an interruption."""
    given = {
        "top_k": top_k,
        "max_answer_tokens": max_answer_tokens,
        "doc_stride": doc_stride,
        "no_answer_threshold": threshold,
        "no_answer": False if always_answer else None,
        "min_precision": min_precision,
        "offsets": [unit.value for unit in offsets] if offsets else None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    request = Request(model, options, priority, jobs, api_key)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with exit_on_error(), _file_errors(), connect(url, api_key, max_retries=MAX_RETRIES) as client:
        if output.exists() and (not output.is_file() or questions.samefile(output)):
            raise InvalidInput(f"{output} cannot be the output: it must be a file, and another than the questions")
        if min_precision is not None and (always_answer or threshold is not None):
            raise InvalidInput("--min-precision decides what has no answer: leave --threshold and --always-answer out")
        with questions.open("rb") as source, _open_output(output, overwrite) as sink:
            kept = answer_file(client, request, source, sink, console)
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
    """The output, open for reading and appending, and nobody else's meanwhile."""
    import fcntl

    with path.open("a+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another `corelane batch` is writing {path}") from None
        if overwrite:
            sink.truncate(0)
        sink.seek(0)
        yield sink


def answer_file(client: "Client", request: Request, source: BinaryIO, sink: BinaryIO, console: Console) -> Kept:
    """Answer what the output does not hold yet, a whole line at a time; what it holds in the end."""
    kept = read_kept(sink)
    raw_lines = number_lines(source)
    skipped_bytes = skip_kept(raw_lines, kept)
    sink.truncate(kept.size_bytes)
    if kept.lines:
        console.print(f"going on after {kept.lines:,} lines that are answered")
    before, started = kept.lines, time.monotonic()
    answers = answer_lines(map(read_line, raw_lines), partial(_ask, client, request))
    try:
        with closing(answers), _progress(console) as progress:
            task = progress.add_task("", total=fstat(source.fileno()).st_size, completed=skipped_bytes, rate=0.0)
            for line, result in answers:
                plain = result.model_dump(mode="json")
                text = write_line(plain)
                sink.write(text)
                sink.flush()
                kept.add(plain, len(text))
                rate = (kept.lines - before) / (time.monotonic() - started)
                progress.update(task, completed=line.end_bytes, description=f"{kept.lines:,} lines", rate=rate)
    except (KeyboardInterrupt, CorelaneError, OSError):
        console.print(f"stopped: {kept.lines:,} lines are answered; run it again, without --overwrite, to go on")
        raise
    console.print(summary(kept, kept.lines - before, time.monotonic() - started))
    return kept


def _ask(client: "Client", request: Request, items: Iterator[Item]) -> Generator[Result, None, None]:
    """Patient once it has begun; a service that is not there to begin with is reported at once."""
    from corelane.bulk import answer_all

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
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def summary(kept: Kept, answered: int, elapsed_s: float) -> str:
    """What became of the file, in a line."""
    rate = f" · {answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    failed = f", {kept.failed:,} failed" if kept.failed else ""
    return f"{kept.lines:,} lines answered: {kept.without_answer:,} without an answer{failed}{rate}"
