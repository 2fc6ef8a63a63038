"""Offsets in other units than code points: UTF-16 code units (JavaScript, Java, C#) and bytes of UTF-8. Pure."""

from collections.abc import Iterable, Sequence

from corelane.domain.options import OffsetUnit
from corelane.engine.question_answering.spans import Candidate

#: The encoding of each unit, and the bytes of one unit.
ENCODINGS: dict[OffsetUnit, tuple[str, int]] = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}


def convert_offsets(
    text: str, spans: Sequence[Candidate], units: Iterable[OffsetUnit]
) -> list[dict[str, tuple[int, int]]]:
    """Return the start and end of each span in each unit; the text is read once per unit."""
    found: list[dict[str, tuple[int, int]]] = [{} for _ in spans]
    places = sorted({place for span in spans for place in (span.start, span.end)})
    for unit in units:
        at = _positions(text, places, *ENCODINGS[unit])
        for span, offsets in zip(spans, found, strict=True):
            offsets[unit] = (at[span.start], at[span.end])
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
