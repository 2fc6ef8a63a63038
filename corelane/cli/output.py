"""How commands print: for programs one JSON value a line, never coloured; for readers tables and lines of fields.

What a service says is shown as it is: none of it is taken for markup, and none can steer the terminal.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from corelane.domain.ids import iso_time

#: Control characters, line separators, and the marks that turn the direction of writing.
CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], " "
)

#: Columns that a table may take where it is no terminal's.
MOST_CHARS = 100_000

#: Columns that a cell gets at least which may be broken.
FOLDED_CHARS = 12

#: Columns that names of fields take.
NAME_CHARS = 9


def print_line(value: object) -> None:
    """A model or plain data as a line of JSON on standard output."""
    write: Callable[[bytes], int] = sys.stdout.buffer.write
    sys.stdout.flush()
    write(orjson.dumps(value, default=_plain_data, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def print_fields(fields: Mapping[str, object]) -> None:
    """A line for each field that says something."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, value in fields.items():
        if value not in (None, ""):
            console.print(f"{name:{NAME_CHARS}} {plain(str(value))}")


def make_table(*columns: str, whole: tuple[str, ...] = ()) -> Table:
    """Make a table without lines; columns that are ``whole``, as ids are, are never broken."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def print_table(table: Table) -> None:
    """Print a table on standard output, unbroken where that is no terminal.

    On a terminal too narrow for the columns that are whole each row becomes a few lines of fields.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        widest = console.measure(table, options=console.options.update(width=MOST_CHARS)).maximum
        console.width = max(console.width, widest)
    if needed_width(table) <= console.width:
        console.print(table)
        return
    names = [str(column.header) for column in table.columns]
    width = max(map(len, names))
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        console.print(str(cells[0]), soft_wrap=True)
        for name, cell in zip(names[1:], cells[1:], strict=True):
            if cell not in ("", "-"):
                console.print(f"  {name:{width}} {cell}", soft_wrap=True)


def needed_width(table: Table) -> int:
    """Return the columns that a table takes if nothing is broken but what may be."""
    widths = []
    for column in table.columns:
        widest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        widths.append(widest if column.no_wrap else min(widest, FOLDED_CHARS))
    return sum(widths) + 2 * (len(widths) - 1)


def short_time(at: str | int | None) -> str:
    """Return a time of the wire, in either of its forms, as a table shows it: to the minute; `-` for none."""
    iso = iso_time(1000 * at) if isinstance(at, int) else at
    return "-" if iso is None else iso[:16].replace("T", " ")


def plain(text: str) -> str:
    """The text without what could move the cursor or forge the screen: control characters become spaces."""
    return text.translate(CONTROLS)


def _plain_data(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not plain data")
