"""The number of the data's format, and the check that this code knows it.

``cl:schema`` holds the number. A process that starts writes it where there is none, as in data of commit 1ee7585 and
before, which are of format 1. Old and new processes run side by side during an upgrade, so a change of the format takes
two releases: the first reads both formats and still writes the old one (``NEWEST`` goes up); the second writes the new
one, and its number (``WRITTEN`` goes up, and ``cl:schema`` with it). Releases before the first refuse to start on it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from corelane.errors import SetupError, Unavailable
from corelane.store import keys

#: The format that this code writes, and the newest that it reads.
WRITTEN = NEWEST = 1

#: Read the number; write it where there is none.
CLAIM = ("SET", keys.SCHEMA, WRITTEN, "NX", "GET")


def require_schema(link: Callable[..., Any]) -> None:
    """Raise SetupError if this code does not know the format of a blocking link's data; pass if Redis is away.

    Then the check is made when the link first loads the library.
    """
    with suppress(Unavailable):
        require_known(link(*CLAIM))


def require_known(found: bytes | None) -> None:
    """Raise SetupError for the reply to ``CLAIM`` if it names a format that this code does not know."""
    if found is not None and not (found.isdigit() and int(found) <= NEWEST):
        raise SetupError(
            f"the data in this Redis have format {found[:20].decode(errors='replace')}; this release knows none beyond "
            f"{NEWEST}: start the release that wrote them, or a newer one, or use another Redis"
        )
