"""From the scores of tokens to entities, by the rules of Transformers' token-classification pipeline. Pure.

Tokens, or words where a strategy decides by words, are joined while the tag stays the same and none begins a new entity
(``B-``). Labels without ``B-`` or ``I-`` continue one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corelane.tasks.token_classification.wire import Aggregation

Scores = NDArray[np.float32]
Places = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A labelled stretch of the text, in code points."""

    label: str
    start: int
    end: int
    score: float


def softmax(logits: NDArray[Any]) -> Scores:
    """Return the scores of each token's labels."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


def find_entities(
    labels: Sequence[str], scores: Scores, places: Places, begins: Sequence[bool], aggregation: Aggregation
) -> list[Stretch]:
    """Return the entities of a text, including those whose label the caller must ignore.

    ``scores`` are tokens × labels, ``places`` where each token starts and ends, and ``begins`` says which tokens begin
    a word.
    """
    if not len(scores):
        return []
    if aggregation in ("none", "simple"):
        best = scores.argmax(axis=-1)
        chosen = scores[np.arange(len(best)), best].tolist()
        pieces = [
            Stretch(labels[at], start, end, score)
            for at, (start, end), score in zip(best.tolist(), places.tolist(), chosen, strict=True)
        ]
    else:
        pieces = list(_words(labels, scores, places, begins, aggregation))
    return pieces if aggregation == "none" else list(_joined(pieces))


def _words(
    labels: Sequence[str], scores: Scores, places: Places, begins: Sequence[bool], aggregation: Aggregation
) -> Iterator[Stretch]:
    """Yield each word with the label that a strategy gives it."""
    firsts = [at for at, begin in enumerate(begins) if begin or at == 0]
    for first, end in zip(firsts, [*firsts[1:], len(scores)], strict=True):
        part = scores[first:end]
        if aggregation == "average":
            of_word = part.mean(axis=0)
        else:
            of_word = part[0] if aggregation == "first" else part[int(part.max(axis=-1).argmax())]
        best = int(of_word.argmax())
        yield Stretch(labels[best], int(places[first, 0]), int(places[end - 1, 1]), float(of_word[best]))


def _joined(pieces: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield neighbours of one entity as one, with their mean score."""
    together: list[Stretch] = []
    for piece in pieces:
        if together and not _continues(together[-1].label, piece.label):
            yield _join(together)
            together = []
        together.append(piece)
    yield _join(together)


def _continues(before: str, label: str) -> bool:
    return not label.startswith("B-") and _tag(before) == _tag(label)


def _tag(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _join(pieces: Sequence[Stretch]) -> Stretch:
    score = float(np.mean([piece.score for piece in pieces]))
    return Stretch(pieces[0].label.split("-", 1)[-1], pieces[0].start, pieces[-1].end, score)
