"""What a page shows of a task's items and results, beside their fields.

The templates of a task are in its folder ``console``: ``item.html`` for an item, ``result.html`` for a result, and
``form.html`` for the fields of the Ask page. In place of one that is missing, the console shows JSON, or fields by
their schema.
"""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from corelane.domain.jobs import Result

#: Most characters of a result in a list.
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """An item to try; ``name`` is in its address, ``about`` on its button."""

    name: str
    about: str
    item: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ItemCall:
    """How one item is sent: a request, and a method of the client with the statements that print what it returns."""

    path: str
    body: Mapping[str, Any]
    method: str
    arguments: Mapping[str, Any]
    returns: str
    after: Sequence[str]


class Presenter:
    """Shows results as JSON. Pure."""

    #: What the task does, in a sentence.
    about: str = "One item, and its result."

    #: What stands in place of a result without output.
    empty: str = "nothing"

    #: The words of the form for fields that are not called by their names.
    names: Mapping[str, str] = MappingProxyType({})

    #: The attribute of a result that matters most; that of its task if empty.
    attribute: str = ""

    def samples(self) -> Sequence[Sample]:
        """Return items to try; if there are none, the task's example is one."""
        return ()

    def asked(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return an item of the form as it is sent; raise InvalidInput if fields do not fit each other."""
        return item

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the best of a result in one line, empty if there is none, and its score if it has one."""
        output = getattr(result, result.mark, None)
        text = "" if output is None else orjson.dumps(output, default=str).decode()
        return (text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"), None

    def shown(self, item: Any, result: Result | None) -> Mapping[str, Any]:  # noqa: ARG002  # for tasks that compute more
        """Return what the templates need besides an item and its result, of which one may be missing."""
        return {}

    def call(self, item: Mapping[str, Any], more: Mapping[str, Any]) -> ItemCall:
        """Return the call that sends one item; ``more`` are the model and the options, where they are given."""
        body = {"items": [item], **more}
        after = ("for result in client.iter_results(client.wait(job.id).id):", "    print(result)")
        return ItemCall("/v1/jobs?wait=25", body, "submit", body, "job", after)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text. ``mark`` is the style of a marked one, ``label`` a word that stands beside it."""

    text: str
    mark: str = ""
    title: str = ""
    label: str = ""


def cut(text: str, marked: Iterable[tuple[int, Piece]]) -> list[Piece]:
    """Return a text in consecutive pieces, which together are the whole text; ``marked`` are some with their offsets.

    Offsets are code points, as Python counts them, so emoji and CJK need no special treatment.

    A piece is not marked if it overlaps an earlier one, or if its text is not at its offset.
    """
    kept: list[tuple[int, int, Piece]] = []
    for start, piece in marked:
        end = start + len(piece.text)
        place = bisect(kept, (start,))
        is_free = (not place or kept[place - 1][1] <= start) and (place == len(kept) or end <= kept[place][0])
        if is_free and 0 <= start < end and text[start:end] == piece.text:
            kept.insert(place, (start, end, piece))
    pieces: list[Piece] = []
    at = 0
    for start, end, piece in kept:
        pieces += [Piece(text[at:start]), piece]
        at = end
    pieces.append(Piece(text[at:]))
    return [piece for piece in pieces if piece.text]
