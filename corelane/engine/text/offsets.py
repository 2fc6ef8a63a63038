"""Offsets in other units than code points: UTF-16 code units (JavaScript, Java, C#) and bytes of UTF-8. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from corelane.tasks.text import OffsetUnit

#: The encoding of each unit, and the bytes of one unit.
ENCODINGS: dict[OffsetUnit, tuple[str, int]] = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}


class Placed(Protocol):
    """Something that has its place in a text, in code points."""

    @property
    def start(self) -> int:
        """Return the index of the first code point."""
        ...

    @property
    def end(self) -> int:
        """Return the index after the last code point."""
        ...


def convert_offsets(
    text: str, stretches: Sequence[Placed], units: Iterable[OffsetUnit]
) -> list[dict[str, tuple[int, int]]]:
    """Return the start and end of each stretch in each unit; the text is read once per unit."""
    found: list[dict[str, tuple[int, int]]] = [{} for _ in stretches]
    places = sorted({place for each in stretches for place in (each.start, each.end)})
    for unit in units:
        at = _positions(text, places, *ENCODINGS[unit])
        for each, offsets in zip(stretches, found, strict=True):
            offsets[unit] = (at[each.start], at[each.end])
    return found


def _positions(text: str, places: Sequence[int], encoding: str, width: int) -> dict[int, int]:
    if text.isascii():
        return {place: place for place in places}
    positions: dict[int, int] = {}
    before, units = 0, 0
    for place in places:
        units += len(text[before:place].encode(encoding, "surrogatepass")) // width
        positions[place] = units
        before = place
    return positions
