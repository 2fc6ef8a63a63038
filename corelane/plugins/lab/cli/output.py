"""What a bench run writes and shows: the live view, the table, files of a report and of its requests, exit codes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.commands import Made
from corelane.cli.folders import writable_folder
from corelane.cli.output import report_console
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.plugins.lab.asserts import Assertion
    from corelane.plugins.lab.figures import Measurement
    from corelane.plugins.lab.schema import Report
    from corelane.plugins.lab.session import Session

#: Exit codes: an assertion does not hold or results are not right; the run proves nothing.
NOT_HELD, INVALID = 1, 3

#: The file name that stands for standard output.
STDOUT = Path("-")

of_output = partial(typer.Option, rich_help_panel="Output")


@dataclass(slots=True)
class Outputs:
    """Where the results of a run go."""

    json: Annotated[Path | None, of_output(metavar="FILE", help="Write the report as JSON; - prints it.")] = None
    csv: Annotated[Path | None, of_output(metavar="FILE", help="Write a line for each run.")] = None
    markdown: Annotated[Path | None, of_output(metavar="FILE", help="Write the rows of a table.")] = None
    html: Annotated[Path | None, of_output(metavar="FILE", help="Write the tables as a page.")] = None
    requests_out: Annotated[Path | None, of_output(metavar="FILE", help="Write each request as a line of JSON.")] = None
    out: Annotated[Path | None, of_output(metavar="DIR", help="Write all of it into a folder.")] = None
    assertion: Annotated[
        list[str] | None, of_output("--assert", help="Fail unless it holds, as p95<200ms; may be repeated.")
    ] = None
    baseline: Annotated[Path | None, of_output(metavar="FILE", help="Fail if this report was really better.")] = None
    assertions: "list[Assertion]" = field(init=False)
    before: "Report | None" = field(init=False)
    #: The requests of the runs so far, if they are written.
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise InvalidInput for mistyped assertions or an unusable baseline or folder, before anything is run."""
        from corelane.plugins.lab.asserts import parse_assertion

        self.assertions = [parse_assertion(text) for text in self.assertion or ()]
        if self.out is not None:
            writable_folder(self.out)
        self.before = None if self.baseline is None else read_report(self.baseline)

    @property
    def keeps_requests(self) -> bool:
        """Whether single requests are written."""
        return self.requests_out is not None or self.out is not None

    @property
    def shows_table(self) -> bool:
        """Whether standard output is free for tables."""
        return STDOUT not in (self.json, self.csv, self.markdown, self.html, self.requests_out)

    @contextmanager
    def showing(self, session: "Session") -> Iterator[None]:
        """Show runs of a session on standard error while they go on, and keep their requests if they are written."""
        from corelane.plugins.lab.live import LiveView

        with LiveView() as view:
            session.on_begin, session.on_tick = view.begin, view.on_tick
            if self.keeps_requests:
                session.on_run = self._keep
            yield

    def _keep(self, point: str, measured: "Measurement") -> None:
        import orjson

        head = {"point": point, "began_at": measured.began_at}
        self.lines += [orjson.dumps(head | each.model_dump(mode="json")) for each in measured.requests]

    def write(self, report: "Report") -> None:
        """Write every file that was asked for, and print the table."""
        from corelane.plugins.lab.render import markdown, page, terminal, to_csv

        files = [
            (self.json, "report.json", report_bytes(report)),
            (self.requests_out, "requests.ndjson", b"".join(line + b"\n" for line in self.lines)),
            (self.csv, "report.csv", to_csv(report).encode()),
            (self.markdown, "report.md", markdown(report).encode()),
            (self.html, "report.html", page(report).encode()),
        ]
        for path, name, content in files:
            if path is not None:
                write_to(path, content)
            if self.out is not None:
                write_to(self.out / name, content)
        if self.shows_table:
            report_console().print(terminal(report))


def report_bytes(report: "Report") -> bytes:
    """Return a report as the content of a file."""
    return report.model_dump_json(by_alias=True, indent=2).encode() + b"\n"


def write_to(path: Path, content: bytes) -> None:
    """Write a file completely, or print it if its name is ``-``; raise InvalidInput if it cannot be written."""
    from corelane.client.wire import whole_file

    if path == STDOUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with whole_file(path) as file:
        file.write(content)


def read_report(path: Path) -> "Report":
    """Read a report; raise InvalidInput if the file is not one."""
    from pydantic import ValidationError

    from corelane.plugins.lab.schema import SCHEMA, Report

    try:
        report = Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError:
        raise InvalidInput(f"{path} is no report of `corelane bench --json`") from None
    if report.schema_ != SCHEMA:
        raise InvalidInput(f"{path} has the schema {report.schema_}; this version reads {SCHEMA}")
    return report


def finish(report: "Report", outputs: Outputs) -> None:
    """Evaluate a report, write it, and exit with the code of the outcome."""
    from corelane.plugins.lab.asserts import check
    from corelane.plugins.lab.compare import compare
    from corelane.plugins.lab.render import comparison

    report.assertions = [check(report, each) for each in outputs.assertions]
    outputs.write(report)
    is_worse = False
    if outputs.before is not None:
        found = compare(outputs.before, report)
        report_console(stderr=True).print(comparison(found))
        is_worse = found.is_worse
    if not report.valid:
        raise typer.Exit(INVALID)
    if is_worse or not report.are_results_right or not all(each["holds"] for each in report.assertions):
        raise typer.Exit(NOT_HELD)


def plain_options(ctx: typer.Context) -> dict[str, Any]:
    """Return every option of a command as plain data, keys hidden."""
    import orjson

    shown = {
        name: "hidden" if name.endswith("api_key") and value else value for name, value in sorted(ctx.params.items())
    }
    return dict(orjson.loads(orjson.dumps(shown, default=str)))


def hidden_arguments(arguments: list[str]) -> list[str]:
    """Return a command line with its API key hidden."""
    pairs = zip(["", *arguments], arguments, strict=False)
    shown = ["…" if before.endswith("-api-key") else each for before, each in pairs]
    return [re.sub(r"(-api-key=).*", r"\1…", each, flags=re.DOTALL) for each in shown]


OutputOptions = Annotated[Outputs, Made(Outputs)]
