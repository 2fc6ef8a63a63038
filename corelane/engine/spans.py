"""Finding answers in logits: span search, scores and the merge over windows. Pure, vectorised over a batch.

A span's *margin* is its start logit + end logit less the window's null logit (start + end at [CLS]): the model's
own measure of "this rather than nothing here", comparable between windows of one item. Without a calibration scores
are the softmax over all spans of all windows and the null, whose margin is 0: they add up to at most 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from corelane.engine.backend import Floats, Ints

#: Candidates kept per window for each answer asked for: overlapping ones are dropped later, and with this many it
#: takes a very odd window to leave fewer than ``top_k``.
CANDIDATES_PER_ANSWER = 8

#: Stands for "not allowed"; finite, so that sums stay finite in fp32.
FORBIDDEN = np.float32(-1e9)


@dataclass(frozen=True, slots=True)
class WindowSpans:
    """The best spans of one window, best first, in tokens of the row; ``mass`` is log Σ exp(margin) over all spans."""

    starts: Ints
    ends: Ints
    margins: Floats
    mass: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span as characters of the caller's context: its margin, its log share among all spans of its window, and what
    it is ranked by, comparable over windows.
    """

    start: int
    end: int
    margin: float
    log_share: float
    strength: float


def find_spans(
    start_logits: Floats, end_logits: Floats, first: Ints, last: Ints, *, max_answer_tokens: int, keep: int
) -> list[WindowSpans]:
    """The ``keep`` best spans of each row, from token ``first`` to before ``last``, at most ``max_answer_tokens`` long.

    Logits are rows × length, with [CLS] at 0; ``first`` and ``last`` hold one position a row. Ends are inclusive.
    """
    rows, length = start_logits.shape
    null = start_logits[:, 0] + end_logits[:, 0]
    position = np.arange(length)
    allowed = (position >= first[:, None]) & (position < last[:, None])
    starts = np.where(allowed, start_logits - null[:, None], FORBIDDEN)
    ends = np.where(allowed, end_logits, FORBIDDEN)
    width = min(max_answer_tokens, length)
    padding = np.full((rows, width - 1), FORBIDDEN, dtype=np.float32)
    following = sliding_window_view(np.concatenate([ends, padding], axis=1), width, axis=1)
    margins = (starts[:, :, None] + following).reshape(rows, length * width)
    return [_best_of_row(margins[row], width, keep) for row in range(rows)]


def _best_of_row(margins: Floats, width: int, keep: int) -> WindowSpans:
    possible = margins > FORBIDDEN / 2
    count = int(possible.sum())
    if count == 0:
        empty = np.empty(0, dtype=np.int64)
        return WindowSpans(empty, empty, np.empty(0, dtype=np.float32), float("-inf"))
    keep = min(keep, count)
    least = np.partition(margins, -keep)[-keep]
    better = np.flatnonzero(margins > least)
    # Among equals the earlier text wins, so that a row's answer never depends on the width of its batch.
    equal = np.flatnonzero(margins == least)[: keep - len(better)]
    best = np.concatenate([better, equal])
    best = best[np.lexsort((best, -margins[best]))]
    peak = float(margins[best[0]])
    mass = peak + float(np.log(np.exp(margins[possible] - peak).sum()))
    return WindowSpans(best // width, best // width + best % width, margins[best], mass)


def merge_candidates(candidates: Iterable[Candidate], top_k: int) -> list[Candidate]:
    """The ``top_k`` best that overlap none better, over all windows of an item; earlier text wins among equals."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (-c.strength, c.start, c.end)):
        if len(chosen) == top_k:
            break
        if all(candidate.end <= other.start or candidate.start >= other.end for other in chosen):
            chosen.append(candidate)
    return chosen


def scores(margins: Sequence[float], masses: Sequence[float]) -> tuple[list[float], float]:
    """Each margin's score, and the null's, given the mass of every window of the item."""
    terms = np.array([0.0, *masses], dtype=np.float64)
    peak = terms.max()
    total = peak + np.log(np.exp(terms - peak).sum())
    return [float(min(1.0, np.exp(margin - total))) for margin in margins], float(np.exp(-total))
