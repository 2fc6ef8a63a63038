"""Cut a passage into pieces, so that a page can mark its answers. Pure.

Offsets are code points, as Python counts them, so emoji and CJK need no special treatment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.tasks.question_answering.wire import Answer


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a passage. ``rank`` is 1 for the best answer, 2 for the next, and None outside answers."""

    text: str
    rank: int | None = None


def cut(context: str, answers: Sequence[Answer]) -> list[Piece]:
    """Return the passage in consecutive pieces, which together are the whole passage.

    An answer is not marked if it overlaps a better one, or if its text is not at its offsets.
    """
    marked: list[tuple[int, int, int]] = []
    for rank, answer in enumerate(answers, 1):
        fits = 0 <= answer.start < answer.end <= len(context) and context[answer.start : answer.end] == answer.text
        if fits and all(answer.end <= start or end <= answer.start for start, end, _ in marked):
            marked.append((answer.start, answer.end, rank))
    pieces: list[Piece] = []
    at = 0
    for start, end, rank in sorted(marked):
        pieces += [Piece(context[at:start]), Piece(context[start:end], rank)]
        at = end
    pieces.append(Piece(context[at:]))
    return [piece for piece in pieces if piece.text]
