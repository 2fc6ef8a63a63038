"""``corelane run``: one item, or lines or a table of items, for a model of any task; results in the same order.

One item is given by its fields, as JSON, or as a text if that is all it needs. Lines come from a file, standard input
or a URL. An argument that is a path, or ends like a file, is never taken for a text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from corelane.cli.item_lines import write_line
from corelane.cli.lines_run import LinesRun, as_url
from corelane.cli.one_item import check, result_for
from corelane.cli.options import JobsOption, MapOption, OutputOption, OverwriteOption, PriorityOption, QuietOption
from corelane.cli.output import error_console, plain, print_line
from corelane.cli.service import LONG_PATIENCE_S, PATIENCE_S, UrlOption, connect
from corelane.cli.tables.forms import STANDARD, form_of
from corelane.cli.waiting import WaitNotice
from corelane.domain.jobs import DEFAULT_TASK, JobStatus, Priority, Result
from corelane.errors import InvalidInput
from corelane.errors.sentences import unknown_name
from corelane.tasks.registry import task_named
from corelane.tasks.task import Task

if TYPE_CHECKING:
    from corelane.client.endpoints import JobParts

#: A field as an argument: its name, and its value as text, or as JSON behind `:=`.
FIELD = re.compile(r"([A-Za-z_]\w*)(:?=)(.*)", re.DOTALL)

#: What is meant as the name of a file: one word with an ending or from a folder on, or any name with an ending we read.
FILE = re.compile(r"\S*\.[A-Za-z]\w{1,7}|(\.{0,2}|~)/\S*|.*\.(jsonl|ndjson|csv|tsv|parquet|npy|gz)", re.IGNORECASE)


def run(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model version, name or alias; or module:Class, asked in this process."),
    ],
    item: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT | FIELD=VALUE… | FILE | -]",
            help="One item: its text, its fields (repeat one for a list; FIELD:=JSON), or a JSON object. Or a file of "
            "items: .jsonl .csv .tsv .parquet .npy, each perhaps with .gz; lines at s3://… or https://…, or - for "
            "stdin, the default.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "-O", metavar="NAME=VALUE", help="An option of the model's task; may be repeated."),
    ] = None,
    output: OutputOption = STANDARD,
    mapped: MapOption = None,
    url: UrlOption = None,
    priority: PriorityOption = Priority.NORMAL,
    jobs: JobsOption = 4,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Give one item or lines of items to a model of any task; run it again to resume after an interruption."""
    console = error_console()
    given_options = read_fields(options or (), as_json=True)
    parts: JobParts = {"model": model, "options": given_options, "priority": priority}
    given = item or ["-"]
    source = source_of(given)
    if source is None and (mapped or output != STANDARD):
        raise InvalidInput(
            "--output is for results of lines, --map for tables: the result of one item is printed, with --json as JSON"
        )
    if ":" in model:
        from corelane.cli.own_class import run_item, run_lines

        if source is None:
            found = run_item(model, lambda own: read_item(own, None, given), given_options)
            show_one(task_named("handler"), found, as_json=as_json)
        elif not run_lines(model, source, output, given_options, overwrite=overwrite):
            raise typer.Exit(2)
        return
    # A run that resumes waits for its service, a new one tells at once that there is none.
    patience_s = LONG_PATIENCE_S if Path(f"{output}.run").exists() else PATIENCE_S
    with connect(url, patience_s=patience_s, on_wait=WaitNotice(console, quiet)) as client:
        info = client.get_model(model)
        task = task_named(info.get("task", DEFAULT_TASK))
        if source is None:
            its_item = read_item(task, info.get("input_schema"), given)
            show_one(task, result_for(client, its_item, parts, console), as_json=as_json)
            return
    lines = LinesRun(
        task=task,
        parts=parts,
        source=source,
        output=output,
        info=info,
        mapped=mapped or (),
        show=write_line if as_json else readable(task),
        url=url,
        jobs=jobs,
        overwrite=overwrite,
        console=console,
        quiet=quiet,
    )
    if not lines.run():
        raise typer.Exit(2)


def show_one(task: Task, result: Result, *, as_json: bool) -> None:
    """Print the result of one item; raises ServiceError if it has no output."""
    if as_json:
        print_line(result)
    check(result)
    if not as_json:
        typer.echo(plain(task.line(result.model_dump(mode="json"))))


def source_of(given: list[str]) -> Path | None:
    """Return where the items are; None if the arguments are one item.

    Raises InvalidInput for what looks like a file and cannot be read.
    """
    path = Path(given[0])
    if len(given) > 1 or (given == ["-"] or as_url(path) is not None):
        return path if len(given) == 1 else None
    is_there = False
    # A text may be too long for a name, or have characters that none has.
    with suppress(OSError, ValueError):
        is_there = path.exists()
    if not is_there and (FIELD.fullmatch(given[0]) or not FILE.fullmatch(given[0])):
        return None
    try:
        if not is_there:
            raise InvalidInput(f"there is no file {path}")
        if path.is_dir():
            raise InvalidInput(f"{path} is a folder: name a file in it")
        form_of(path)
    except InvalidInput as error:
        raise InvalidInput(f"{error}. If it is a text, give it with its field, as in text={given[0]!r}") from None
    return path


def read_item(task: Task, schema: Mapping[str, Any] | None, given: list[str]) -> dict[str, Any]:
    """Return one item from arguments, by its task's form or its version's own ``schema``; raise InvalidInput."""
    schema = schema or task.item.model_json_schema()
    fields, needed = schema.get("properties", {}), schema.get("required", [])
    found = [FIELD.fullmatch(each) for each in given]
    if all(each is not None and (each[1] in fields or not needed) for each in found):
        return read_fields(given, as_json=False)
    if len(given) == 1 and found[0] is not None:
        there = unknown_name("field", found[0][1], fields)
        raise InvalidInput(f"{given[0][:64]!r}: {there}. Give a text of this form with its field, as in text='a=b'")
    with suppress(orjson.JSONDecodeError):
        if len(given) == 1 and isinstance(value := orjson.loads(given[0]), dict):
            return value
    if len(given) == 1 and len(needed) == 1:
        return {needed[0]: given[0]}
    shown = task.example if set(needed) <= task.example.keys() else dict.fromkeys(needed, "…")
    example = " ".join(shown_field(name, value) for name, value in shown.items())
    raise InvalidInput(f"an item of {task.name} has other fields: give them as in {example}")


def shown_field(name: str, value: Any) -> str:
    """Return a field as an argument for a shell."""
    return f"{name}={value!r}" if isinstance(value, str) else f"{name}:={orjson.dumps(value).decode()!r}"


def read_fields(given: Iterable[str], *, as_json: bool) -> dict[str, Any]:
    """Return fields given as NAME=VALUE; one that is repeated is a list. Raises InvalidInput for another form.

    With ``as_json`` each value is JSON if it is any.
    """
    fields: dict[str, list[Any]] = {}
    for each in given:
        match = FIELD.fullmatch(each)
        if match is None:
            raise InvalidInput(f"{each!r} is not NAME=VALUE")
        name, sign, text = match.groups()
        value: Any = text
        try:
            value = orjson.loads(text) if as_json or sign == ":=" else text
        except orjson.JSONDecodeError:
            if sign == ":=":
                raise InvalidInput(f"{each!r}: behind := stands JSON") from None
        fields.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def readable(task: Task) -> Callable[[dict[str, Any]], bytes]:
    """Return what writes results for a terminal: a line each, with its id, or else its number."""

    def write(result: dict[str, Any]) -> bytes:
        name = result["index"] if result["id"] is None else result["id"]
        has_failed = result["status"] != JobStatus.SUCCEEDED
        said = f"{result['status']}: {(result['error'] or {}).get('detail', '')}" if has_failed else task.line(result)
        return f"{plain(f'{name}: {said}')}\n".encode()

    return write
