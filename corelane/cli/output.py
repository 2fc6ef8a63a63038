"""How commands print: for programs one JSON value a line, never coloured; for readers tables and lines of fields.

What a service says is shown as it is: none of it is taken for markup, and none can steer the terminal.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

#: Control characters, line separators, and the marks that turn the direction of writing.
CONTROLS = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], " "
)

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
    """A table without lines; columns that are ``whole`` are never broken."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def print_table(table: Table) -> None:
    """A table on standard output."""
    Console(highlight=False, markup=False, emoji=False).print(table)


def plain(text: str) -> str:
    """The text without what could move the cursor or forge the screen: control characters become spaces."""
    return text.translate(CONTROLS)


def _plain_data(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not plain data")
