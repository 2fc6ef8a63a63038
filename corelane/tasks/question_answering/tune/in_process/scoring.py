"""Scores like those of transformers' pipeline: in a window, the start's probability times the end's probability.

The scores of equal texts are added, within a window or across windows. So with several windows a score is not a
probability, and scores of different windows cannot be compared. ``corelane.engine`` scores differently. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corelane.engine.backends.protocol import Floats, Ints

#: The logit given to tokens that cannot be in an answer, as in transformers.
HIDDEN = np.float32(-10_000)

#: A window has this many times ``top_k`` candidates, plus this number, because whole words make some of them equal.
TIMES, MORE = 2, 10

Places = NDArray[np.int32]


class WindowLogits(NamedTuple):
    """The logits of a window's context tokens, from token ``first`` of the context on, and of its null token."""

    first: int
    start: Floats
    end: Floats
    null_start: float
    null_end: float


class ScoredSpan(NamedTuple):
    """An answer's score, and its place in the context."""

    score: float
    start: int
    end: int


class WindowScores(NamedTuple):
    """The best spans of a window in tokens of the context, both ends included, and the score of no answer."""

    starts: Ints
    ends: Ints
    scores: Floats
    null: float


def score_window(window: WindowLogits, most_tokens: int, keep: int) -> WindowScores:
    """Return the ``keep`` best spans of a window, of at most ``most_tokens``; of equal spans the earlier is first."""
    start, null_start = _share(window.start, window.null_start)
    end, null_end = _share(window.end, window.null_end)
    count = len(start)
    width = min(most_tokens, count)
    padded = np.zeros(count + width, dtype=np.float32)
    padded[:count] = end
    products = start[:, None] * padded[np.arange(count)[:, None] + np.arange(width)]
    best = np.argsort(-products, axis=None, kind="stable")[:keep]
    best = best[products.flat[best] > 0]
    first, more = np.divmod(best, max(1, width))
    return WindowScores(window.first + first, window.first + first + more, products.flat[best], null_start * null_end)


def _share(logits: Floats, null: float) -> tuple[Floats, float]:
    """Return each token's probability in the row, and the null token's."""
    row = np.append(logits, np.float32(null)).astype(np.float32)
    weights = np.exp(row - row.max(initial=HIDDEN))
    shares = weights / weights.sum()
    return shares[:-1], float(shares[-1])


def merge_windows(
    text: str, windows: Sequence[WindowScores], places: Places, *, top_k: int, with_null: bool
) -> list[ScoredSpan]:
    """Return the ``top_k`` best answers, best first.

    ``places`` has the place in the text of each token, or of each token's word. With ``with_null`` an empty answer
    competes, with the smallest null score of all windows.
    """
    found: dict[str, ScoredSpan] = {}
    for window in windows:
        for first, last, score in zip(window.starts, window.ends, window.scores.tolist(), strict=True):
            start, end = int(places[first, 0]), int(places[last, 1])
            known = found.get(key := text[start:end].lower())
            found[key] = ScoredSpan(score, start, end) if known is None else known._replace(score=known.score + score)
    answers = list(found.values())
    if with_null:
        answers.append(ScoredSpan(min((window.null for window in windows), default=0.0), 0, 0))
    return sorted(answers, key=lambda answer: -answer.score)[:top_k]


def word_places(words: Iterable[int | None], places: Places) -> Places:
    """Return for each token the place of its whole word; a token without a word keeps its own place."""
    spans: dict[int, tuple[int, int]] = {}
    listed = list(words)
    for word, (start, end) in zip(listed, places.tolist(), strict=True):
        if word is not None:
            spans[word] = (spans.get(word, (start, end))[0], end)
    rows = [tuple(place) if word is None else spans[word] for word, place in zip(listed, places.tolist(), strict=True)]
    return np.array(rows, dtype=np.int32).reshape(-1, 2)
