"""The console's pages of files, batches and stored texts.

The console asks for them (``Plugin.console``), so they may use the console's modules. Without the console nothing here
is loaded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corelane.domain.texts import WIRE_NAMES as TEXTS
from corelane.plugins.console.pages.nav import ConsolePages, NavEntry

if TYPE_CHECKING:
    from fastapi import APIRouter

    from corelane.plugins.console.pages.stream import Feed

NAV = (NavEntry(TEXTS.title(), TEXTS, "c"), NavEntry("Files", "files", "f"), NavEntry("Batches", "batches", "b"))


def pages() -> ConsolePages:
    """Return the pages."""
    return ConsolePages(NAV, Path(__file__).parent / "templates", load)


def load() -> "tuple[Sequence[APIRouter], dict[str, Feed]]":
    """Return the pages' routes, and the feed of a batch's page."""
    from corelane.plugins.files.console import files, texts

    return (texts.router, files.router), {"batch": files.feed}
