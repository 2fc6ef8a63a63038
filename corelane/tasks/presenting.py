"""What a page shows of a task's items and results, in addition to their fields.

The templates of a task are in its folder ``console``: ``item.html`` for an item, ``result.html`` for a result, and
``form.html`` for the fields of the Ask page. Without its template, the console shows an item or result as JSON, and
the form by the schema of its fields.
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
    """An item to try; ``name`` is in its address, ``about`` is on its button."""

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

    #: The form's labels for fields that it does not call by their names.
    names: Mapping[str, str] = MappingProxyType({})

    #: The attribute of a result that matters most; if empty, the one that the task names.
    attribute: str = ""

    def samples(self) -> Sequence[Sample]:
        """Return items to try; if empty, the page offers the task's example."""
        return ()

    def asked(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return the form's item as it is sent to the API; raise InvalidInput if its fields contradict each other."""
        return item

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return a result's best output in one line, empty without output, and the output's score if it has one."""
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
    """A part of a text. ``mark`` is the style of a marked one, ``label`` a word that is shown next to the part."""

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
