"""Choose an item's answers among the spans of its windows: the best one, then the best that overlaps none chosen. Pure.

Spans are compared by what their own window says of them. Where the best listed spans of a window all overlap a chosen
answer, its logits are searched for the next: an item gets as many answers as fit beside each other, up to ``top_k``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.engine.decode.characters import whole_characters
from corelane.engine.decode.spans import FORBIDDEN, Bools, SpanLogits, WindowSpans
from corelane.engine.text.cache import Context


class Candidate(NamedTuple):
    """A span as characters of the caller's context: its margin, its log share among all spans of its window, and what
    it is ranked by, comparable over windows.
    """

    start: int
    end: int
    margin: float
    log_share: float
    strength: float


class SpanSource:
    """The spans of one window as candidates, best first."""

    def __init__(
        self, text: str, context: Context, spans: WindowSpans, shift: int, calibration: Calibration | None
    ) -> None:
        """``shift`` leads from a token of the row to the same token of the context."""
        self._text = text
        self._context = context
        self._spans = spans
        self._shift = shift
        self._calibration = calibration
        self._listed = 0
        self._empty: set[int] = set()

    def best(self, chosen: Sequence[Candidate]) -> Candidate | None:
        """Return the best candidate that overlaps none chosen; what was chosen before must be in ``chosen`` again."""
        spans = self._spans
        while self._listed < len(spans.margins):
            at = self._listed
            candidate = self._candidate(int(spans.starts[at]), int(spans.ends[at]), float(spans.margins[at]))
            if candidate is not None and not overlaps(candidate, chosen):
                return candidate
            self._listed += 1
        return self._search(chosen)

    def _search(self, chosen: Sequence[Candidate]) -> Candidate | None:
        """Return the best of the spans that are not listed."""
        logits = self._spans.logits
        if logits is None:
            return None
        free = self._free_tokens(logits, chosen)
        while (found := logits.best(free)) is not None and found[2] > FORBIDDEN / 2:
            candidate = self._candidate(*found)
            if candidate is not None and not overlaps(candidate, chosen):
                return candidate
            free[found[0] - logits.first] = False
        return None

    def _free_tokens(self, logits: SpanLogits, chosen: Sequence[Candidate]) -> Bools:
        """Return which tokens of the window share no character with a chosen answer."""
        first = logits.first + self._shift
        places = self._context.places[first : first + len(logits.starts)]
        free = np.ones(len(places), dtype=np.bool_)
        for other in chosen:
            free &= (places[:, 1] <= other.start) | (places[:, 0] >= other.end)
        return free

    def _candidate(self, first: int, last: int, margin: float) -> Candidate | None:
        """Return a span of tokens as characters; None if it has none."""
        start, end = int(self._context.places[first + self._shift, 0]), int(self._context.places[last + self._shift, 1])
        if end <= start:
            return None
        share = margin - self._spans.mass
        strength = margin if self._calibration is None else self._calibration.log_score(margin, share)
        return Candidate(*whole_characters(self._text, start, end), margin, share, strength)


def choose_candidates(sources: Iterable[SpanSource], top_k: int) -> list[Candidate]:
    """Return the ``top_k`` best candidates, best first, none overlapping a better one; earlier text among equals."""
    chosen: list[Candidate] = []
    offers = [(candidate, source) for source in sources if (candidate := source.best(())) is not None]
    while offers and len(chosen) < top_k:
        best, _ = min(offers, key=_rank)
        chosen.append(best)
        renewed = []
        for candidate, source in offers:
            offer = candidate if not overlaps(candidate, (best,)) else source.best(chosen)
            if offer is not None:
                renewed.append((offer, source))
        offers = renewed
    return chosen


def overlaps(candidate: Candidate, others: Iterable[Candidate]) -> bool:
    """Return whether a candidate shares a character with any of the others."""
    return any(candidate.start < other.end and other.start < candidate.end for other in others)


def _rank(offer: tuple[Candidate, SpanSource]) -> tuple[float, int, int]:
    candidate = offer[0]
    return -candidate.strength, candidate.start, candidate.end
