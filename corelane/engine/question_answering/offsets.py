"""Offsets in other units than code points: UTF-16 code units (JavaScript, Java, C#) and bytes of UTF-8. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from corelane.domain.jobs import OffsetUnit

#: How a text is written in each unit, and how many bytes one of it takes.
ENCODINGS: dict[OffsetUnit, tuple[str, int]] = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}


class Stretch(Protocol):
    """From where to where in the text, in code points."""

    @property
    def start(self) -> int:
        """The first code point."""
        ...

    @property
    def end(self) -> int:
        """One past the last."""
        ...


def convert_offsets(
    text: str, stretches: Sequence[Stretch], units: Iterable[OffsetUnit]
) -> list[dict[str, tuple[int, int]]]:
    """The start and end of each stretch in each unit; the text is gone through once a unit, whatever its length."""
    found: list[dict[str, tuple[int, int]]] = [{} for _ in stretches]
    places = sorted({place for stretch in stretches for place in (stretch.start, stretch.end)})
    for unit in units:
        at = _positions(text, places, *ENCODINGS[unit])
        for stretch, offsets in zip(stretches, found, strict=True):
            offsets[unit] = (at[stretch.start], at[stretch.end])
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
