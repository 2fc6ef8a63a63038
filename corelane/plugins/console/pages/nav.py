"""The navigation of the console, and the pages that plugins add to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from api.plugin import ApiPlugin
from corelane.domain.api_keys import Scope
from corelane.plugin import installed

if TYPE_CHECKING:
    from fastapi import APIRouter

    from corelane.plugins.console.pages.stream import Feed


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A page in the navigation; the keys `g` and ``key`` open it, ``scope`` is the scope that its readers need."""

    name: str
    path: str
    key: str
    scope: Scope = Scope.READ


@dataclass(frozen=True, slots=True)
class ConsolePages:
    """Pages of a plugin: its entries in the navigation, its folder of templates, and its routes and feeds."""

    nav: Sequence[NavEntry]
    templates: Path
    load: "Callable[[], tuple[Sequence[APIRouter], dict[str, Feed]]]"


#: The pages that plugins add.
ADDED = tuple(pages for plugin in installed(ApiPlugin) if isinstance(pages := plugin.console(), ConsolePages))

NAV = (
    NavEntry("Overview", ".", "o"),
    NavEntry("Ask", "ask", "a", Scope.SUBMIT),
    NavEntry("Jobs", "jobs", "j"),
    *(entry for pages in ADDED for entry in pages.nav),
    NavEntry("Webhooks", "webhooks", "w"),
    NavEntry("Models", "models", "m"),
)
