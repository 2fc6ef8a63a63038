"""The number of the data format, and the service that owns the data. A process checks both when it starts.

``cl:schema`` holds the number. A process that starts writes it if it is missing. Data of commit 1ee7585 and before have
no number: they are of format 1. Old and new processes run side by side during an upgrade, so a change of the format
takes two releases. The first reads both formats and still writes the old one (``NEWEST`` goes up). The second writes
the new one, and its number (``WRITTEN`` goes up, and ``cl:schema`` with it). Releases before the first refuse to start
on data of the new format.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from corelane.domain.ids import CELL
from corelane.errors import SetupError, Unavailable
from corelane.store import keys

#: The format that this code writes, and the newest that it reads.
WRITTEN = NEWEST = 1

#: Keys that exist in a Redis that was used before its service was noted.
USED = (keys.MODELS, keys.JOB_COUNTS, keys.ENDS)

#: The command that reads the number, and writes it if there is none.
CLAIM = ("SET", keys.SCHEMA, WRITTEN, "NX", "GET")


def require_schema(link: Callable[..., Any], cell: str = CELL) -> None:
    """Raise SetupError if this code does not know the format of the data, or they belong to another service.

    ``link`` is a blocking link. Pass if Redis cannot be reached: the format is then checked when the link first loads
    the library.
    """
    with suppress(Unavailable):
        require_known(link(*CLAIM))
        require_cell(link, cell)


def require_cell(link: Callable[..., Any], cell: str) -> None:
    """Raise SetupError if the data belong to another service. Data of releases that noted none belong to `0`."""
    found = link("GET", keys.CELL)
    if found is None:
        first = CELL if link("EXISTS", *USED) else cell
        found = link("SET", keys.CELL, first, "NX", "GET") or first.encode()
    if found.decode() != cell:
        raise SetupError(
            f"this Redis is that of service {found.decode()}, and CORELANE_CELL is {cell}: its ids name the former; "
            "correct CORELANE_CELL or the URL, or use an empty Redis"
        )


def require_known(found: bytes | None) -> None:
    """Raise SetupError if the reply to ``CLAIM`` names a format that this code does not know."""
    if found is not None and not (found.isdigit() and int(found) <= NEWEST):
        raise SetupError(
            f"the data in this Redis have format {found[:20].decode(errors='replace')}; this release knows none beyond "
            f"{NEWEST}: start the release that wrote them, or a newer one, or use another Redis"
        )
