"""Pages of lists: each cell is asked for a page, and the items that surely come first make the page of all.

A cell that has more stops at its cursor. What other cells have beyond that point waits for the next page, so that no
item is passed over. A cursor is an item's, and every cell can begin behind an item of another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corelane.domain.ids import age_key, on_cell

#: What items are sorted by, as text and numbers.
Place = tuple[Any, ...]

#: A query as pairs, in order.
Query = Sequence[tuple[str, str]]


def same(cursor: str, _: str) -> str:
    """Return a cursor that every cell reads alike."""
    return cursor


@dataclass(frozen=True, slots=True)
class Pages:
    """One kind of list."""

    #: The cursor of an item.
    cursor: Callable[[Mapping[str, Any]], str]
    #: Where a cursor stands.
    place: Callable[[str], Place]
    #: The cursor for a cell.
    at: Callable[[str, str], str] = on_cell
    #: Items in a page that were not asked for.
    limit: int = 20
    is_newest_first: bool = True
    #: Whether the next page is asked for by the last id, as OpenAI's lists have it.
    has_ids: bool = False

    def ask(self, query: Query, cell: str) -> Query:
        """Return what one cell is asked."""
        return [(name, self.at(value, cell) if name == "after" else value) for name, value in query]

    def merge(self, found: Mapping[str, Any], query: Query) -> Any:
        """Return the page of all."""
        given = dict(query)
        limit = int(given.get("limit", self.limit))
        is_newest_first = self.is_newest_first != (given.get("order") == "asc")
        pages = list(found.values())
        ends = [end for page in pages if (end := self._end(page)) is not None]
        items = [item for page in pages for item in page["data"]]
        items.sort(key=lambda item: self.place(self.cursor(item)), reverse=is_newest_first)
        if ends:
            first_end = (max if is_newest_first else min)(ends, key=self.place)
            bound = self.place(first_end)
            items = [item for item in items if not _is_beyond(self._of(item), bound, is_newest_first)]
        else:
            first_end = None
        shown = self._cut(items, limit)
        following = self.cursor(shown[-1]) if len(shown) < len(items) else first_end
        return self._page(pages[0], shown, following)

    def _of(self, item: Mapping[str, Any]) -> Place:
        return self.place(self.cursor(item))

    def _cut(self, items: Sequence[Any], limit: int) -> Sequence[Any]:
        """Return the first items; those of different cells that stand at one place are not separated."""
        end = limit
        while 0 < end < len(items) and self._of(items[end]) == self._of(items[end - 1]):
            end += 1
        return items[:end]

    def _end(self, page: Mapping[str, Any]) -> str | None:
        if not page["has_more"]:
            return None
        end: str | None = page["last_id"] if self.has_ids else page["next"]
        return end

    def _page(self, like: Mapping[str, Any], shown: Sequence[Any], following: str | None) -> dict[str, Any]:
        merged = {**like, "data": shown, "has_more": following is not None}
        if "next" in like:
            merged["next"] = following
        if "first_id" in like or self.has_ids:
            merged |= {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
        return merged


def _is_beyond(place: Place, bound: Place, is_newest_first: bool) -> bool:
    return place < bound if is_newest_first else place > bound


def id_place(cursor: str) -> Place:
    """Return where an id stands: by its time."""
    return (age_key(cursor),)


def failed_place(cursor: str) -> Place:
    """Return where a failed item stands: newest job first, then in item order."""
    job, _, index = cursor.rpartition(".")
    return age_key(job), -int(index)


def dead_cursor(item: Mapping[str, Any]) -> str:
    """Return the cursor of a dead letter: when it was given up, and its id."""
    ended = datetime.fromisoformat(item["ended_at"]) if item["ended_at"] else datetime.fromtimestamp(0)
    return f"{round(ended.timestamp() * 1000)}.{item['id']}"


def dead_place(cursor: str) -> Place:
    """Return where a dead letter stands."""
    ms, _, delivery = cursor.partition(".")
    return int(ms), delivery


def line_place(cursor: str) -> Place:
    """Return where a line of the audit stands: a stream's id. Lines of two cells may have the same."""
    ms, _, number = cursor.partition("-")
    return int(ms), int(number)


def own_id(item: Mapping[str, Any]) -> str:
    """Return the id of an item, which is its cursor."""
    return str(item["id"])


LISTS = {
    "jobs": Pages(own_id, id_place),
    "failed-items": Pages(lambda item: f"{item['job']}.{item['index']}", failed_place),
    "deliveries": Pages(dead_cursor, dead_place, same, is_newest_first=False),
    "files": Pages(own_id, id_place, limit=10_000, has_ids=True),
    "batches": Pages(own_id, id_place, has_ids=True),
    "audit": Pages(own_id, line_place, same, limit=50),
}
