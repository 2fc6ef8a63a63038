"""What is shown of several cells, by name: what each cell is asked, and how their answers become one."""

from collections.abc import Collection, Mapping
from typing import Any

from api.cells.merging import fleet
from api.cells.merging.pages import LISTS, Query
from api.cells.merging.usage import usage

#: Merges that look at nothing but the answers.
PLAIN = {
    "cores": fleet.cores,
    "models": fleet.models,
    "model": fleet.models,
    "aliases": fleet.aliases,
    "pauses": fleet.pauses,
    "history": fleet.history,
    "scaling": fleet.scaling,
    "usage": usage,
    "failure-groups": fleet.failure_groups,
}


def asked_of(shows: str, query: Query, cell: str) -> Query:
    """Return the query for one cell."""
    if (pages := LISTS.get(shows)) is not None:
        return pages.ask(query, cell)
    return [(name, value) for name, value in query if (shows, name) != ("usage", "format")]


def merged(shows: str, found: Mapping[str, Any], query: Query, away: Collection[str]) -> Any:
    """Return the answer of all cells that answered; ``away`` are the others."""
    if (pages := LISTS.get(shows)) is not None:
        return pages.merge(found, query)
    if shows == "ready":
        return fleet.ready(found, away)
    if shows == "overview":
        return fleet.overview(found, away)
    return PLAIN[shows](found)
