"""The console's pages of files and batches.

The console asks for them (``Plugin.console``), so they may use the console's modules. Without the console nothing here
is loaded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corelane.plugins.console.pages.nav import ConsolePages, Feed, NavEntry

if TYPE_CHECKING:
    from fastapi import APIRouter

NAV = (NavEntry("Files", "files", "f"), NavEntry("Batches", "batches", "b"))


def pages() -> ConsolePages:
    """Return the pages."""
    return ConsolePages(NAV, Path(__file__).parent / "templates", load)


def load() -> "tuple[Sequence[APIRouter], dict[str, Feed]]":
    """Return the pages' routes, and the feed of a batch's page."""
    from corelane.plugins.files.console import files

    return (files.router,), {"batch": files.feed}
