"""``corelane batch``: questions, one JSON object a line or a CSV, answered into results in the same order.

Each result is the API's, with two more fields: ``index``, the line's position in the input, counted from 0, and the
``model`` version that answered. Blank lines have no result. An output file always begins with complete, final lines, so
an interrupted run resumes where its output ends. Jobs that the service still works on are not submitted again. So each
line is answered once, whatever stopped the run. A resume with other options is refused. Lines that cannot be asked get
a failed result; exit code 2 if any result failed. ``-`` is standard input or output.
"""

import fcntl
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console

from corelane.cli.batch_progress import Meter, count_ahead, count_lines, following
from corelane.cli.by_reference import STANDARD, answer_by_reference, as_url, is_whole
from corelane.cli.by_reference import summary as summary_of_job
from corelane.cli.dry_run import DryRunOption, describe
from corelane.cli.options import AnswerOptions, PriorityOption
from corelane.cli.output import error_console, print_one
from corelane.cli.question_lines import (
    CSV,
    JSON_LINES,
    LineFormat,
    NumberedLine,
    OutputState,
    answer_lines,
    read_line,
    read_output,
    refuse_others,
    skip_answered,
)
from corelane.cli.resume import RunFile, open_run
from corelane.cli.service import LONG_PATIENCE_S, KeyOption, ModelOption, UrlOption, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import Priority, Result
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.tasks.question_answering.wire import Question

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.bulk import BulkState
    from corelane.client.endpoints import JobParts


def batch(
    options: AnswerOptions,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUESTIONS",
            help="Lines of JSON with question, context (or context_id) and id, or a .csv with these columns; - is "
            "standard input; s3://… or https://… is read by the service.",
        ),
    ] = STANDARD,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where results go; an interrupted run resumes an existing file.")
    ] = STANDARD,
    url: UrlOption = None,
    model: ModelOption = "default",
    api_key: KeyOption = None,
    priority: PriorityOption = Priority.NORMAL,
    label: Annotated[list[str] | None, typer.Option(help="A word to find its jobs by; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs in flight at a time.")] = 4,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over, dropping an existing output.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Read and write CSV with a header, whatever the files are named.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, on standard error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Answer a file of questions; run it again to resume after an interruption."""
    report = BatchReport(error_console(), quiet, as_json)
    parts: JobParts = {"model": model, "options": options, "priority": priority, "labels": label}
    asked = as_url(questions)
    if asked is not None and (dry_run or as_csv or overwrite):
        raise InvalidInput("questions at a URL are read by the service: leave out --dry-run, --csv and --overwrite")
    notice = WaitNotice(report.console, quiet)
    with _file_errors(), connect(url, api_key, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
        if asked is not None:
            parts["input_url"] = asked
            job = answer_by_reference(client, parts, output, report.say)
            report.end(job.model_dump(mode="json", exclude={"results"}), summary_of_job(job))
            is_done = is_whole(job)
        else:
            check_files(questions, output)
            run = BulkRun(
                client=client,
                connect=partial(connect, url, api_key),
                parts=parts,
                jobs=jobs,
                questions=format_of(questions, as_csv),
                format=format_of(output, as_csv),
                output=None if output == STANDARD else output,
                overwrite=overwrite,
                report=report,
                where=(f" --url {url}" if url else "") + (" --api-key …" if api_key else ""),
            )
            opened = nullcontext(sys.stdin.buffer) if questions == STANDARD else questions.open("rb")
            with opened as source:
                is_done = run.forecast(source) if dry_run else run.answer(source)
    if not is_done:
        raise typer.Exit(2)


def check_files(questions: Path, output: Path) -> None:
    """Raise InvalidInput if the questions do not exist, or results cannot be written to the output."""
    if questions == STANDARD and sys.stdin.isatty():
        raise InvalidInput("name a file of questions, or send them to standard input: corelane batch < FILE")
    if output == STANDARD or not output.exists():
        return
    if not output.is_file() or (questions != STANDARD and questions.samefile(output)):
        raise InvalidInput(f"{output} cannot be the output: it must be a file, and not that of the questions")


def format_of(path: Path, as_csv: bool) -> LineFormat:
    """Return the format of a file: CSV if its name or an option says so, or else JSON lines."""
    return CSV if as_csv or path.suffix.lower() == ".csv" else JSON_LINES


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
            raise InvalidInput(f"another `corelane batch` is writing {path}") from None
        sink.seek(0)
        yield sink


@dataclass(frozen=True, slots=True)
class BatchReport:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One run of the command; ``output`` is None if the run cannot be resumed."""

    client: "Client"
    connect: "Callable[..., Client]"
    parts: "JobParts"
    jobs: int
    questions: LineFormat
    format: LineFormat
    output: Path | None
    overwrite: bool
    report: BatchReport
    #: The options with which another command finds the same service.
    where: str

    def answer(self, source: BinaryIO) -> bool:
        """Answer the lines that are not in the output yet, writing complete lines; return whether no line failed."""
        from corelane.client.bulk import BulkState

        with _open_output(self.output) as sink:
            total = None if self.report.quiet else count_ahead(source, self.questions.number)
            raw_lines = refuse_others(self.questions.number(source))
            kept = OutputState() if self.output is None or self.overwrite else read_output(sink, self.format)
            run = open_run(self.output, self._asks(), kept.lines, overwrite=self.overwrite)
            again = skip_answered(raw_lines, kept, run.lines)
            if self.output is not None:
                sink.truncate(kept.size_bytes)
            if not kept.size_bytes:
                sink.write(self.format.header)
                kept.size_bytes = len(self.format.header)
            if kept.lines:
                self.report.say(f"resuming after {count_lines(kept.lines)} answered before")
            state = BulkState(spend=run.spend)
            meter = Meter(state, total, kept.lines, run.lines, run.is_resumed)
            try:
                self._write(chain(again, raw_lines), sink, kept, run, meter)
                sink.flush()
            except (KeyboardInterrupt, CorelaneError, OSError):
                self.report.say(self._stopped(self._count_written(sink, kept), run.name, state))
                raise
        elapsed_s, answered = time.monotonic() - meter.started, kept.lines - meter.before
        self.report.end(figures(kept, answered, elapsed_s, run), summary(kept, answered, elapsed_s, run))
        return not kept.failed

    def forecast(self, source: BinaryIO) -> bool:
        """Print what the lines that are not in the output yet would take. Nothing is asked or written."""
        from corelane.client.endpoints import job_head

        kept, bad = OutputState(), 0
        if self.output is not None and self.output.exists() and not self.overwrite:
            with self.output.open("rb") as before:
                kept = read_output(before, self.format)

        def items() -> Iterator[Question]:
            nonlocal bad
            for line in map(read_line, islice(refuse_others(self.questions.number(source)), kept.lines, None)):
                bad += line.item is None
                if line.item is not None:
                    yield line.item

        asked = items()
        if (first := next(asked, None)) is None:
            raise InvalidInput("no line is left that can be asked")
        print_one(
            self.client.forecast_lines(chain([first], asked), job_head(self.parts)), self.report.as_json, describe
        )
        if bad:
            self.report.say(f"{count_lines(bad)} cannot be asked")
        return True

    def _asks(self) -> dict[str, Any]:
        """Return the options that all lines are asked with, by the names of options."""
        head: dict[str, Any] = {name: value for name, value in self.parts.items() if name != "options"}
        options: Any = self.parts["options"]
        return head | options

    def _write(
        self, raw_lines: Iterable[NumberedLine], sink: BinaryIO, kept: OutputState, run: RunFile, meter: Meter
    ) -> None:
        """Ask ``raw_lines``, which begin where the run does, and write the results that are not in the output yet."""
        # If results go to the terminal, a bar would stand between them.
        has_bar = self.report.console.is_terminal and not self.report.quiet
        has_bar = has_bar and not (self.output is None and sys.stdout.isatty())
        with self.connect(patience_s=0) as looker:
            look = partial(meter.state.look, looker, run.name)
            answers = answer_lines(map(read_line, raw_lines), partial(self._ask, run, meter))
            progress = following(meter, look, self.report.say, self.report.console, has_bar=has_bar)
            with closing(answers), progress:
                for result in answers:
                    meter.at += 1
                    if meter.at > meter.before:
                        plain = result.model_dump(mode="json")
                        text = self.format.write(plain)
                        kept.add(plain, len(text))
                        sink.write(text)
                        sink.flush()

    def _count_written(self, sink: BinaryIO, kept: OutputState) -> int:
        """Return how many lines the output has. The last line is left out if not all of it was written."""
        if self.output is None:
            return kept.lines
        with suppress(OSError):
            sink.flush()
        return kept.lines - (fstat(sink.fileno()).st_size < kept.size_bytes)

    def _ask(self, run: RunFile, meter: Meter, items: Iterator[Question]) -> Generator[Result, None, None]:
        """Yield the results of items. Fails at once if the service cannot be reached at the start; later it waits."""
        from corelane.client.bulk import NamedRun, answer_all

        def reached(items: int) -> None:
            run.lines, run.items = meter.at, items
            run.write()

        first = next(items, None)
        if first is None:
            return
        if not run.is_resumed:
            with self.connect(on_wait=WaitNotice(self.report.console, quiet=True)) as hasty:
                hasty.models()
        # The run's name, as a label, finds all its jobs, to cancel them for instance.
        parts: JobParts = {**self.parts, "labels": [*(self.parts["labels"] or ()), run.name]}
        yield from answer_all(
            self.client,
            chain([first], items),
            jobs_in_flight=self.jobs,
            run=None if run.path is None else NamedRun(run.name, run.items, reached),
            state=meter.state,
            **parts,
        )

    def _stopped(self, lines: int, label: str, state: "BulkState") -> str:
        """Return what is done, which jobs the service still works on, and how to resume or stop them."""
        resume, go_on, stop = "", "", ""
        if self.output is not None:
            resume = "\n  to resume: run the same command again, without --overwrite"
        if count := len(state.jobs):
            jobs, are = ("1 job goes", "is") if count == 1 else (f"{count} jobs go", "are")
            go_on = f"\n  {jobs} on at the service and {are} charged: {count_lines(state.open)} not answered yet"
            stop = f"\n  to stop that:\n    corelane jobs cancel --label {label}{self.where}"
        return f"stopped: {count_lines(lines)} answered{go_on}{resume}{stop}"


def figures(kept: OutputState, answered: int, elapsed_s: float, run: RunFile) -> dict[str, Any]:
    """Return the summary as plain data."""
    return {
        "lines": kept.lines,
        "without_answer": kept.without_answer,
        "failed": kept.failed,
        "answered_now": answered,
        "seconds": round(elapsed_s, 3),
        "core_s": round(run.core_s, 6),
        "cost": run.cost and run.cost.model_dump(include={"amount", "currency"}),
    }


def summary(kept: OutputState, answered: int, elapsed_s: float, run: RunFile) -> str:
    """Return the summary: first the results by outcome, below them time and cost."""
    found = kept.lines - kept.failed - kept.without_answer
    counts = {"answered": found, "without an answer": kept.without_answer, "failed": kept.failed}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    rate = f"{answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    cost = "" if run.cost is None else f"{run.cost.shown()} for all"
    below = " · ".join(filter(None, (rate, cost)))
    return f"{count_lines(kept.lines)}{': ' if said else ''}{said}" + (f"\n{below}" if below else "")
