"""The navigation of the console, what a page is made of, and the pages that plugins add."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from api.plugin import ApiPlugin
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.plugin import installed


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A page in the navigation; the keys `g` and ``key`` open it, ``scope`` is the scope that its readers need."""

    name: str
    path: str
    key: str
    scope: Scope = Scope.READ


@dataclass(frozen=True, slots=True)
class Update:
    """The current content of a page: its parts as HTML by element id, and values for its script by name."""

    parts: Mapping[str, str]
    values: Mapping[str, Any] | None = None


#: Returns the content of a page, for a caller, with the page's own arguments.
Feed = Callable[[AppState, Caller, Mapping[str, str]], Coroutine[Any, Any, Update]]


@dataclass(frozen=True, slots=True)
class ConsolePages:
    """Pages of a plugin: its entries in the navigation, its folder of templates, and its routes and feeds."""

    nav: Sequence[NavEntry]
    templates: Path
    load: Callable[[], tuple[Sequence[APIRouter], dict[str, Feed]]]


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
