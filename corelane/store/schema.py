"""The number of the data format, and the service that owns the data. A process checks both when it starts.

``cl:schema`` holds the number. A process that starts writes it if it is missing. A change of the format raises it.
No code reads the data of another format: docs/upgrade.md says what that asks of an operator.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from corelane.domain.ids import CELL
from corelane.errors import SetupError, Unavailable
from corelane.store import keys

#: The format that this code writes, and the only one that it reads.
FORMAT = 3

#: The command that reads the number, and writes it if there is none.
CLAIM = ("SET", keys.SCHEMA, FORMAT, "NX", "GET")


def require_schema(link: Callable[..., Any], cell: str = CELL) -> None:
    """Raise SetupError if this code does not know the format of the data, or they belong to another service.

    ``link`` is a blocking link. Pass if Redis cannot be reached: the format is then checked when the link first loads
    the library.
    """
    with suppress(Unavailable):
        # A Redis that is full takes no `SET`, even if nothing changes.
        require_known(link("GET", keys.SCHEMA) or link(*CLAIM))
        require_cell(link, cell)


def require_cell(link: Callable[..., Any], cell: str) -> None:
    """Raise SetupError if the data belong to another service; note this service if none is noted."""
    found = link("SET", keys.CELL, cell, "NX", "GET")
    if found is not None and found.decode() != cell:
        raise SetupError(
            f"this Redis is that of service {found.decode()}, and CORELANE_CELL is {cell}: its ids name the former; "
            "correct CORELANE_CELL or the URL, or use an empty Redis"
        )


def require_known(found: bytes | None) -> None:
    """Raise SetupError if the reply to ``CLAIM`` names another format than this code's."""
    if found not in (None, str(FORMAT).encode()):
        raise SetupError(
            f"the data in this Redis have format {found[:20].decode(errors='replace')}, and this version reads format "
            f"{FORMAT} alone: start the version that wrote them, or use an empty Redis (`--data` with a new folder)"
        )
