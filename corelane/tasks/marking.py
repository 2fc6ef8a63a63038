"""Cut a text into pieces, so that a page can mark stretches of it. Pure.

Offsets are code points, as Python counts them, so emoji and CJK need no special treatment.
"""

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text. ``mark`` is the style of a marked one, ``label`` a word that stands beside it."""

    text: str
    mark: str = ""
    title: str = ""
    label: str = ""


def cut(text: str, marked: Iterable[tuple[int, Piece]]) -> list[Piece]:
    """Return a text in consecutive pieces, which together are the whole text; ``marked`` are some with their offsets.

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
