"""``corelane batch``: questions, one JSON object a line or a CSV, answered into results in the same order.

Each result is the wire's, with ``index`` the line's position in the input, counted from 0, and the ``model`` version
that answered; blank lines have none. An output file always begins with whole, final lines, so an interrupted run
resumes where its output ends, and jobs that the service still works on are not asked again: each line is answered once,
whatever stopped the run. A resume that would ask otherwise is refused. Lines that cannot be asked get a failed result;
exit code 2 if any result failed. ``-`` is standard input or output.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console

from corelane.cli.batch_progress import Meter, count_ahead, count_lines, following
from corelane.cli.by_reference import answer_by_reference, as_url
from corelane.cli.dry_run import DryRunOption, describe, forecast_questions, unanswered
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
from corelane.cli.usage import show_cost
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import Item, ModelResult, Priority
from corelane.errors import CorelaneError, InvalidInput, SetupError

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.bulk import BulkState
    from corelane.client.endpoints import JobParts

#: Standard input or output, where a file is asked for.
STANDARD = Path("-")


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
    console = error_console()
    notice = WaitNotice(console, quiet)
    parts: JobParts = {"model": model, "options": options, "priority": priority, "labels": label}
    if (asked := as_url(questions)) is not None:
        if dry_run or as_csv or overwrite:
            raise InvalidInput("questions at a URL are read by the service: leave out --dry-run, --csv and --overwrite")
        with connect(url, api_key, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
            parts["input_url"] = asked
            is_whole = answer_by_reference(client, parts, output, None if quiet else console, as_json=as_json)
        if not is_whole:
            raise typer.Exit(2)
        return
    with _file_errors(), connect(url, api_key, patience_s=LONG_PATIENCE_S, on_wait=notice) as client:
        if questions == STANDARD and sys.stdin.isatty():
            raise InvalidInput("name a file of questions, or send them to standard input: corelane batch < FILE")
        is_same = questions != STANDARD and output != STANDARD and output.exists() and questions.samefile(output)
        if is_same or (output != STANDARD and output.exists() and not output.is_file()):
            raise InvalidInput(f"{output} cannot be the output: it must be a file, and not that of the questions")
        run = BulkRun(
            client=client,
            url=url,
            api_key=api_key,
            parts=parts,
            jobs=jobs,
            questions=format_of(questions, as_csv),
            format=format_of(output, as_csv),
            output=None if output == STANDARD else output,
            overwrite=overwrite,
            console=console,
            quiet=quiet,
            as_json=as_json,
        )
        opened = nullcontext(sys.stdin.buffer) if questions == STANDARD else questions.open("rb")
        if dry_run:
            with opened as source:
                run.forecast(source)
            return
        with opened as source, _open_output(output) as sink:
            kept = run.answer(source, sink)
    if kept.failed:
        raise typer.Exit(2)


def format_of(path: Path, as_csv: bool) -> LineFormat:
    """Return how a file is read or written: CSV by its name, or because that is asked for."""
    return CSV if as_csv or path.suffix.lower() == ".csv" else JSON_LINES


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
    import fcntl

    if path == STANDARD:
        yield sys.stdout.buffer
        return
    with path.open("a+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another `corelane batch` is writing {path}") from None
        sink.seek(0)
        yield sink


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One run of the command; ``output`` is None where it cannot be resumed."""

    client: "Client"
    url: str | None
    api_key: str | None = field(repr=False)
    parts: "JobParts"
    jobs: int
    questions: LineFormat
    format: LineFormat
    output: Path | None
    overwrite: bool
    console: Console
    quiet: bool
    as_json: bool

    def answer(self, source: BinaryIO, sink: BinaryIO) -> OutputState:
        """Answer the lines that the output lacks, writing whole lines; return the output's state at the end."""
        from corelane.client.bulk import BulkState

        total = None if self.quiet else count_ahead(source, self.questions.number)
        raw_lines = refuse_others(self.questions.number(source))
        kept = OutputState()
        if self.output is not None and not self.overwrite:
            kept = read_output(sink, self.format)
        run = open_run(self.output, self._asks(), kept.lines, overwrite=self.overwrite)
        again = skip_answered(raw_lines, kept, run.lines)
        if self.output is not None:
            sink.truncate(kept.size_bytes)
        if not kept.size_bytes:
            sink.write(self.format.header)
            kept.size_bytes = len(self.format.header)
        if kept.lines:
            self._say(f"resuming after {count_lines(kept.lines)} answered before")
        before, started = kept.lines, time.monotonic()
        state = BulkState(spend=run.spend)
        meter = Meter(state, total, kept.lines, run.lines, run.is_resumed)
        try:
            self._write(chain(again, raw_lines), sink, kept, run, meter)
            sink.flush()
        except (KeyboardInterrupt, CorelaneError, OSError):
            self._say(self._stopped(self._count_written(sink, kept), run.name, state))
            raise
        elapsed_s = time.monotonic() - started
        if self.as_json:
            data = figures(kept, kept.lines - before, elapsed_s, run)
            self.console.print_json(data=data, indent=None, highlight=False)
        else:
            self._say(summary(kept, kept.lines - before, elapsed_s, run))
        return kept

    def forecast(self, source: BinaryIO) -> None:
        """Print what the lines that the output lacks would take; nothing is asked or written."""
        kept = OutputState()
        if self.output is not None and self.output.exists() and not self.overwrite:
            with self.output.open("rb") as before:
                kept = read_output(before, self.format)
        lines = unanswered(map(read_line, refuse_others(self.questions.number(source))), kept)
        found, bad = forecast_questions(self.client, lines, self.parts)
        print_one(found, self.as_json, describe)
        if bad:
            self._say(f"{count_lines(bad)} cannot be asked")

    def _asks(self) -> dict[str, Any]:
        """Return what every line is asked with, by the names of options."""
        head: dict[str, Any] = {name: value for name, value in self.parts.items() if name != "options"}
        options: Any = self.parts["options"]
        return head | options

    def _write(
        self, raw_lines: Iterator[NumberedLine], sink: BinaryIO, kept: OutputState, run: RunFile, meter: Meter
    ) -> None:
        """Ask the lines from the run's beginning on, and write those that the output lacks."""

        def reached(items: int) -> None:
            run.lines, run.items = meter.at, items
            run.write()

        # Where results are shown themselves, a bar would be in between.
        has_bar = self.console.is_terminal and not self.quiet and not (self.output is None and sys.stdout.isatty())
        with connect(self.client.base_url, self.api_key, patience_s=0) as looker:
            look = partial(meter.state.look, looker, run.name)
            answers = answer_lines(map(read_line, raw_lines), partial(self._ask, run, reached, meter.state))
            with closing(answers), following(meter, look, self._say, self.console, has_bar=has_bar):
                for result in answers:
                    meter.at += 1
                    if meter.at > meter.before:
                        plain = result.model_dump(mode="json")
                        text = self.format.write(plain)
                        kept.add(plain, len(text))
                        sink.write(text)
                        sink.flush()

    def _count_written(self, sink: BinaryIO, kept: OutputState) -> int:
        """Return how many lines the output has: the last one that was counted may not have been written."""
        if self.output is None:
            return kept.lines
        with suppress(OSError):
            sink.flush()
        return kept.lines - (fstat(sink.fileno()).st_size < kept.size_bytes)

    def _ask(
        self,
        run: RunFile,
        reached: Callable[[int], None],
        state: "BulkState",
        items: Iterator[Item],
    ) -> Generator[ModelResult, None, None]:
        """Yield the results of items; report at once if the service is away when a run begins, but be patient later."""
        from corelane.client.bulk import NamedRun, answer_all

        first = next(items, None)
        if first is None:
            return
        if not run.is_resumed:
            with connect(self.client.base_url, self.api_key, on_wait=WaitNotice(self.console, quiet=True)) as hasty:
                hasty.models()
        # All jobs of a run can be found, and canceled, by its name.
        parts: JobParts = {**self.parts, "labels": [*(self.parts["labels"] or ()), run.name]}
        yield from answer_all(
            self.client,
            chain([first], items),
            jobs_in_flight=self.jobs,
            run=None if run.path is None else NamedRun(run.name, run.items, reached),
            state=state,
            **parts,
        )

    def _stopped(self, lines: int, label: str, state: "BulkState") -> str:
        """Return what is done, which jobs continue at the service, and how to resume or stop them."""
        said = [f"stopped: {count_lines(lines)} answered"]
        if self.output is not None:
            said.append("  to resume: run the same command again, without --overwrite")
        if state.jobs:
            count, left = len(state.jobs), count_lines(state.open)
            jobs, are = ("1 job goes", "is") if count == 1 else (f"{count} jobs go", "are")
            said.insert(1, f"  {jobs} on at the service and {are} charged: {left} not answered yet")
            given = {"--url": self.url, "--api-key": self.api_key and "…"}
            where = "".join(f" {name} {value}" for name, value in given.items() if value is not None)
            said.append(f"  to stop that:\n    corelane jobs cancel --label {label}{where}")
        return "\n".join(said)

    def _say(self, sentence: str) -> None:
        if not self.quiet:
            self.console.print(sentence)


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
    """Return the summary: what became of the lines; below, what they took."""
    found = kept.lines - kept.failed - kept.without_answer
    counts = {"answered": found, "without an answer": kept.without_answer, "failed": kept.failed}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    rate = f"{answered:,} in {elapsed_s:.1f} s ({answered / elapsed_s:,.0f}/s)" if answered and elapsed_s > 0 else ""
    cost = "" if run.cost is None else f"{show_cost(run.cost)} for all"
    below = " · ".join(part for part in (rate, cost) if part)
    return f"{count_lines(kept.lines)}{': ' if said else ''}{said}" + (f"\n{below}" if below else "")
