"""The output of commands: one JSON value a line for programs, tables and lines of fields for people.

JSON is never coloured. Text from a service is shown as it is: it is not read as markup and cannot control the terminal.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
import typer
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

from corelane.domain.ids import iso_time

#: Widest table if output is not a terminal, in columns.
MOST_CHARS = 100_000

#: Least width of a cell whose text may be broken, in columns.
FOLDED_CHARS = 12

#: Width of the column of field names.
NAME_CHARS = 11

#: Control characters, line separators, and the marks that change the direction of writing.
CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], " "
)


def plain(text: str) -> str:
    """Replace control characters in a text by spaces: they could move the cursor or forge the screen."""
    return text.translate(CONTROLS)


def error_console() -> Console:
    """Return a console for sentences on standard error, which are never broken, coloured or read as markup."""
    return Console(stderr=True, soft_wrap=True, markup=False, highlight=False, emoji=False)


def print_line(value: object) -> None:
    """Print a model or plain data as a line of JSON on standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(value, default=_plain_data, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def print_one(value: Any, as_json: bool, describe: Callable[[Any], Mapping[str, object]]) -> None:
    """Print a model or plain data: as a line of JSON, or for people as the fields that ``describe`` returns."""
    if as_json:
        print_line(value)
    else:
        print_fields(describe(value))


def print_sentence(value: Any, as_json: bool, sentence: str) -> None:
    """Print a model or plain data: as a line of JSON, or for people as ``sentence``."""
    if as_json:
        print_line(value)
    else:
        typer.echo(sentence)


def print_list(
    found: Iterable[Any],
    columns: Sequence[str],
    row: Callable[[Any], Iterable[str]],
    *,
    whole: Collection[str],
    as_json: bool,
    ids: bool = False,
) -> None:
    """Print a list: each entry as a line of JSON or as its id, or all as a table with a row for each."""
    table = make_table(*columns, whole=whole)
    for each in found:
        if ids:
            typer.echo(each.id)
        elif as_json:
            print_line(each)
        else:
            table.add_row(*row(each))
    if not (as_json or ids):
        print_table(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a line for each field that has a value."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, value in fields.items():
        if value not in (None, ""):
            console.print(f"{name:{NAME_CHARS}} {plain(str(value))}")


def make_table(*columns: str, whole: Collection[str] = ()) -> Table:
    """Make a table without lines. Columns in ``whole``, such as ids, are never broken."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def print_table(table: Table) -> None:
    """Print a table on standard output, unbroken if that is not a terminal.

    On a terminal too narrow for the unbreakable columns, each row becomes a few lines of fields.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        widest = console.measure(table, options=console.options.update(width=MOST_CHARS)).maximum
        console.width = max(console.width, widest)
    if needed_width(table.columns) <= console.width:
        console.print(table)
        return
    names = [str(column.header) for column in table.columns]
    width = max(map(len, names))
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        console.print(str(cells[0]), soft_wrap=True)
        for name, cell in zip(names[1:], cells[1:], strict=True):
            if cell not in ("", "-"):
                console.print(f"  {name:{width}} {cell}", soft_wrap=True)


def needed_width(columns: Iterable[Column]) -> int:
    """Return the least width of a table with these columns, if only the breakable cells are broken."""
    widths = []
    for column in columns:
        lines = [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
        widest = max(map(cell_len, lines))
        widths.append(widest if column.no_wrap else min(widest, FOLDED_CHARS))
    return sum(widths) + 2 * (len(widths) - 1)


def short_time(at: str | int | None) -> str:
    """Return a time of a response, in ISO form or in seconds, to the minute; `-` for None."""
    iso = iso_time(1000 * at) if isinstance(at, int) else at
    return "-" if iso is None else iso[:16].replace("T", " ")


def _plain_data(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not plain data")
