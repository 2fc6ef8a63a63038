"""Write what is published, as the code has it: ``docs/reference.md`` and ``docs/openapi.json``. ``make docs`` runs it.

``tests/docs/test_docs.py`` holds both equal to what this makes.
"""

import signal
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import typer

from api.app import create_app
from api.errors import HTTP_CODES, STATUS
from corelane import errors
from corelane.cli.app import make_cli
from corelane.cli.errors import INTERRUPTED
from corelane.cli.jobs import NOT_ANSWERED
from corelane.metrics import definitions
from corelane.settings import Settings

PAGE = Path(__file__).parent / "reference.md"
DOCUMENT = Path(__file__).parent / "openapi.json"

HEAD = """# Reference

Generated from the code by `make docs`: [settings](#settings), [error codes](#error-codes),
[commands](#commands), [exit codes](#exit-codes), [metrics](#metrics).
"""

SETTINGS = """## Settings

Each setting is an environment variable, a line in `.env`, or a file of that name in `/run/secrets`.
A wrong value is refused in one sentence with an example. Every command and role warns of a name
that is not a setting, with the nearest right name (a log line `unknown_setting` where logs are
JSON). `corelane doctor` lists such names. It fails if one was meant to protect the service, as
`CORELANE_AUHT=required` was.
"""

ERRORS = """## Error codes

Errors are problem documents (RFC 9457), `application/problem+json`. `type` is
`urn:corelane:problem:CODE`. `code` is stable. `detail` says what is wrong and what to do.
`request_id` is the id to name when you ask for help. Failed items carry the same codes in `error`.
Where "again" says yes, the same request can succeed later; a 429 or 503 has `Retry-After`.
"""

COMMANDS = """## Commands

`corelane COMMAND --help` says everything. `corelane --install-completion` teaches your shell.
"""

EXITS = """## Exit codes
"""

#: What each exit code of a command means.
EXIT_ROWS = {
    0: "done",
    1: "it could not be done: a sentence on standard error says what to do",
    NOT_ANSWERED: "some items were not answered (`batch`, `run`, `jobs watch`), or the command was mistyped",
    INTERRUPTED: "Ctrl-C",
    128 + signal.SIGTERM: "SIGTERM; `serve` and the parts of a service stop in order, and end with 0",
}

METRICS = """## Metrics

`GET /metrics` has these, for Prometheus.
"""


def cell(text: str) -> str:
    """Return text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def settings_rows() -> Iterator[str]:
    """Yield a row for each setting; a path that depends on the machine is left out."""
    yield "| variable | default | meaning |\n|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        hidden = default is None or field.default_factory or isinstance(default, tuple)
        shown = "" if hidden else f"`{default}`"
        yield f"| `CORELANE_{name.upper()}` | {shown} | {cell(str(field.description))} |"


def error_classes(base: type[errors.CorelaneError] = errors.CorelaneError) -> list[type[errors.CorelaneError]]:
    """Return the public tree of errors. A package may refine a class for itself, under the same code."""
    children = [child for child in base.__subclasses__() if child.__module__ == errors.__name__]
    return [base, *(found for child in children for found in error_classes(child))]


def error_rows() -> Iterator[str]:
    """Yield a row for each code, those of the framework too."""
    yield "| code | status | again | means |\n|---|---|---|---|"
    for error in error_classes():
        nearest = next(each for each in error.__mro__ if each in STATUS)
        status = "" if nearest is errors.CorelaneError is not error else STATUS[nearest]
        again = "yes" if error.retryable else ""
        yield f"| `{error.code}` | {status} | {again} | {cell((error.__doc__ or '').partition(chr(10) * 2)[0])} |"
    known = {error.code for error in error_classes()}
    for code in dict.fromkeys(code for code in HTTP_CODES.values() if code not in known):
        status = ", ".join(str(each) for each, of in HTTP_CODES.items() if of == code)
        phrase = HTTPStatus(next(each for each, of in HTTP_CODES.items() if of == code)).phrase
        yield f"| `{code}` | {status} | | {phrase}. |"
    yield "| `http_error` | any other | | Another failure before Corelane's own code ran. |"


def command_rows() -> Iterator[str]:
    """Yield a row for each command, with its options."""
    yield "| command | options | does |\n|---|---|---|"
    yield from _rows_below(typer.main.get_command(make_cli()), "")


def _rows_below(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _rows_below(command, f"{path}{name} ")
            continue
        arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
        shown = " ".join([path + name, *arguments]).replace("|", "\\|")
        names = [each.secondary_opts or each.opts for each in command.params if each.param_type_name == "option"]
        options = " ".join(f"`{max(each, key=len)}`" for each in names)
        yield f"| `{shown}` | {options} | {cell(command.help or '')} |"


def exit_rows() -> Iterator[str]:
    """Yield a row for each exit code."""
    yield "| exit code | means |\n|---|---|"
    yield from (f"| `{code}` | {means} |" for code, means in EXIT_ROWS.items())


def metric_rows() -> Iterator[str]:
    """Yield a row for each metric."""
    yield "| metric | kind | meaning |\n|---|---|---|"
    for metric in definitions.ALL.values():
        labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
        yield f"| `{metric.name}{labels}` | {metric.kind} | {metric.help} |"


def make_page() -> str:
    """Return the whole page."""
    parts = (
        *((SETTINGS, settings_rows()), (ERRORS, error_rows()), (COMMANDS, command_rows())),
        *((EXITS, exit_rows()), (METRICS, metric_rows())),
    )
    tables = [f"{head}\n{chr(10).join(rows)}\n" for head, rows in parts]
    return "\n".join([HEAD, *tables])


def make_document() -> bytes:
    """Return the OpenAPI document of a service with the default settings."""
    return orjson.dumps(create_app(Settings()).openapi(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    PAGE.write_text(make_page())
    DOCUMENT.write_bytes(make_document())
