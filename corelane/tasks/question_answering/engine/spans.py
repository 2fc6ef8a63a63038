"""From logits to an item's answers: finds spans in a batch, and chooses among those of all windows. Pure.

A span's *margin* is its start logit + end logit minus the window's null logit (start + end at [CLS]). It is the model's
measure of "this rather than no answer here", comparable between windows of one item. Without a calibration, scores are
the softmax over all spans of all windows and the null, whose margin is 0: they add up to at most 1.

An item gets its best candidate, then the best that overlaps none chosen so far. If the listed spans of a window all
overlap a chosen answer, its logits are searched for the next one. So an item gets up to ``top_k`` answers, if that many
do not overlap. An answer never splits an accent, a skin tone, a flag or a family: the rules are Unicode's extended
grapheme clusters (UAX #29), as the package ``regex`` has them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.artifacts.calibration import Calibration
from corelane.engine.backends.protocol import Floats, Ints
from corelane.engine.text.tokenize import TextTokens
from corelane.tasks.question_answering.options import AnswerOptions

Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Best spans listed per window. An item with several answers keeps the logits too, to find further spans.
LISTED = 8

#: Stands for "not allowed"; finite, so that sums stay finite in fp32.
FORBIDDEN = np.float32(-1e9)

#: One character as people see it.
GRAPHEME = regex.compile(r"\X")

#: Characters below this never join the one before, except a line feed after a carriage return.
FIRST_JOINING = "\u0300"

#: Code points searched backwards for the beginning of a character. No language has longer characters.
LONGEST_CHARACTER = 128

#: Longest part of a word that is searched for on either side of an answer, in characters.
LONGEST_WORD_PART = 256


@dataclass(frozen=True, slots=True)
class SpanLogits:
    """The logits of a window's context tokens; the first one is token ``first`` of its row.

    The null logit is already subtracted from ``starts``.
    """

    starts: Floats
    ends: Floats
    first: int
    max_answer_tokens: int

    def best(self, free: Bools) -> tuple[int, int, float] | None:
        """Return the best span of only free tokens: first and last token in the row, margin; None if there is none.

        ``free`` has one entry per context token. Among equals the earlier text wins.
        """
        length = len(self.starts)
        if not free.any():
            return None
        width = min(self.max_answer_tokens, length)
        padded = np.full(length + width - 1, FORBIDDEN, dtype=np.float32)
        padded[:length] = self.ends
        margins = self.starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)
        position = np.arange(length)
        taken = np.where(free, length, position)
        room = np.minimum.accumulate(taken[::-1])[::-1] - position
        margins[np.arange(width) >= room[:, None]] = FORBIDDEN
        start, more = divmod(int(margins.argmax()), width)
        return self.first + start, self.first + start + more, float(margins[start, more])


@dataclass(frozen=True, slots=True)
class WindowSpans:
    """The best spans of one window, best first, in tokens of the row; ``mass`` is log Σ exp(margin) over all spans.

    ``logits`` hold all other spans, if they were requested.
    """

    starts: Ints
    ends: Ints
    margins: Floats
    mass: float
    logits: SpanLogits | None = None


def find_spans(
    start_logits: Floats,
    end_logits: Floats,
    first: Ints,
    last: Ints,
    *,
    max_answer_tokens: int,
    keep: int = LISTED,
    with_logits: bool = False,
    null_at: Ints | int = 0,
) -> list[WindowSpans]:
    """Return the ``keep`` best spans of each row, each at most ``max_answer_tokens`` long.

    Spans lie from token ``first`` to before ``last``. ``with_logits`` adds the logits, in which further spans can be
    found. Logits are rows × length. ``first``, ``last`` and ``null_at`` (the place of [CLS], by default 0) have one
    position per row. Ends are inclusive. Among equals the earlier text wins, so that a row's answer never depends on
    the width of its batch.
    """
    rows, length = start_logits.shape
    every = np.arange(rows)
    null = start_logits[every, null_at] + end_logits[every, null_at]
    position = np.arange(length)
    allowed = (position >= first[:, None]) & (position < last[:, None])
    starts = np.where(allowed, start_logits - null[:, None], FORBIDDEN)
    width = min(max_answer_tokens, length)
    ends = np.full((rows, length + width - 1), FORBIDDEN, dtype=np.float32)
    np.copyto(ends[:, :length], end_logits, where=allowed)
    # Each of the best spans begins at one of the ``keep`` starts whose best spans are highest.
    likely = np.sort(_best(starts + _slide(np.maximum, ends, width), keep), axis=1)
    row_of = every[:, None]
    following = (likely + row_of * ends.shape[1])[:, :, None] + np.arange(width)
    margins = (starts[row_of, likely][:, :, None] + ends.take(following)).reshape(rows, -1)
    best = _best(margins, keep)
    kept = margins[row_of, best]
    which, more_tokens = np.divmod(best, width)
    from_token = likely[row_of, which]
    to_token = from_token + more_tokens
    counts = (kept > FORBIDDEN / 2).sum(axis=1).tolist()
    # The mass is at least the best span's margin: if all spans are far below the best start and end, the sum is zero.
    masses = np.maximum(_masses(starts, ends, width), kept[:, 0]).tolist()
    found = []
    for row, (count, mass) in enumerate(zip(counts, masses, strict=True)):
        logits = None
        if with_logits and count == keep:
            tokens = slice(int(first[row]), int(last[row]))
            # These are copies: a view would keep the whole batch while the item is read.
            logits = SpanLogits(
                starts[row, tokens].copy(), end_logits[row, tokens].copy(), int(first[row]), max_answer_tokens
            )
        listed = from_token[row, :count], to_token[row, :count], kept[row, :count]
        found.append(WindowSpans(*listed, mass if count else -math.inf, logits))
    return found


def _best(values: Floats, keep: int) -> Ints:
    """Return the places of the ``keep`` greatest values of each row, the greatest first; among equals the first place.

    This is a stable argsort that numpy can vectorise. It sorts integers. Their upper bits are
    in the order of the values, their lower bits are the places.
    """
    bits = (values + np.float32(0)).view(np.int32)
    ordered = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    keys = (np.invert(ordered).astype(np.int64) << 32) | np.arange(values.shape[1])
    keys.sort(axis=1)
    return keys[:, :keep] & 0xFFFFFFFF


def _masses(starts: Floats, ends: Floats, width: int) -> Doubles:
    """Return log Σ exp(margin) over all spans of each row; −∞ if all lie 700 below the best start and end."""
    best_start, best_end = (part.max(axis=1, keepdims=True).astype(np.float64) for part in (starts, ends))
    weights = _slide(np.add, np.exp(ends - best_end), width)
    weights *= np.exp(starts - best_start)
    # Added up one by one, so that padding at the end changes nothing.
    sums = np.add.accumulate(weights, axis=1)[:, -1:]
    with np.errstate(divide="ignore"):
        masses: Doubles = np.log(sums) + best_start + best_end
    return masses[:, 0]


def _slide(combine: np.ufunc, values: NDArray[Any], width: int) -> NDArray[Any]:
    """Combine each ``width`` neighbours in a row into one value, from runs of 1, 2, 4 … of them."""
    length = values.shape[1] - width + 1
    size, done = 1, 0
    result: NDArray[Any] | None = None
    for bit in range(width.bit_length()):
        if bit:
            values = combine(values[:, :-size], values[:, size:])
            size *= 2
        if width & size:
            part = values[:, done : done + length]
            result = part if result is None else combine(result, part)
            done += size
    if result is None:
        raise ValueError(f"a window of {width} holds nothing")
    return result


def scores(margins: Sequence[float], masses: Sequence[float]) -> tuple[list[float], float]:
    """Return the score of each margin and of the null; ``masses`` has the mass of each window of the item."""
    peak = max(0.0, *masses)
    total = peak + math.log(math.exp(-peak) + math.fsum(math.exp(mass - peak) for mass in masses))
    return [min(1.0, math.exp(margin - total)) for margin in margins], math.exp(-total)


class Candidate(NamedTuple):
    """A span as characters of the caller's context.

    It has its margin, its log share among all spans of its window, and its strength, by which candidates of all windows
    are ranked.
    """

    start: int
    end: int
    margin: float
    log_share: float
    strength: float


class SpanSource:
    """The spans of one window as candidates, best first."""

    def __init__(
        self, text: str, context: TextTokens, spans: WindowSpans, shift: int, calibration: Calibration | None
    ) -> None:
        """``shift`` added to a token's place in the row gives its place in the context."""
        self._text = text
        self._places = context.places
        self._spans = spans
        self._shift = shift
        self._calibration = calibration
        self._listed = 0

    def best(self, chosen: Sequence[Candidate]) -> Candidate | None:
        """Return the best candidate that overlaps none chosen. ``chosen`` may only grow from call to call."""
        spans = self._spans
        while self._listed < len(spans.margins):
            at = self._listed
            candidate = self._candidate(int(spans.starts[at]), int(spans.ends[at]), float(spans.margins[at]))
            if candidate is not None and not overlaps(candidate, chosen):
                return candidate
            self._listed += 1
        return self._search(chosen)

    def _search(self, chosen: Sequence[Candidate]) -> Candidate | None:
        """Return the best span that is not listed."""
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
        places = self._places[first : first + len(logits.starts)]
        free = np.ones(len(places), dtype=np.bool_)
        for other in chosen:
            free &= (places[:, 1] <= other.start) | (places[:, 0] >= other.end)
        return free

    def _candidate(self, first: int, last: int, margin: float) -> Candidate | None:
        """Convert a span of tokens to characters; None if it is only white space."""
        start, end = int(self._places[first + self._shift, 0]), int(self._places[last + self._shift, 1])
        # Tokens of byte-level BPE and of SentencePiece may begin with the space before their word.
        while start < end and self._text[start].isspace():
            start += 1
        while start < end and self._text[end - 1].isspace():
            end -= 1
        if end <= start:
            return None
        share = margin - self._spans.mass
        strength = margin if self._calibration is None else self._calibration.log_score(margin, share)
        return Candidate(*whole_characters(self._text, start, end), margin, share, strength)


def choose_candidates(sources: Iterable[SpanSource], top_k: int) -> list[Candidate]:
    """Return the ``top_k`` best candidates that do not overlap, best first; among equals the earlier text."""
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


def gives_answer(options: AnswerOptions, margin: float, score: float, default_threshold: float) -> bool:
    """Return whether the best candidate is given as the answer, by the job's own options or the threshold."""
    if not options.no_answer:
        return True
    if options.min_precision is not None:
        return score >= options.min_precision
    threshold = default_threshold if options.no_answer_threshold is None else options.no_answer_threshold
    return -margin <= threshold


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen ``start`` and ``end`` to whole characters; both are in code points."""
    first = _bounds(text, start)[0] if start < end else start
    return first, _bounds(text, end)[1]


def _bounds(text: str, at: int) -> tuple[int, int]:
    """Return the boundaries of characters next to ``at``: the last one up to it, and the first one from it on."""
    if at <= 0 or at >= len(text) or text[at] < FIRST_JOINING:
        return at, at
    begin, least = at - 1, max(0, at - LONGEST_CHARACTER)
    while begin > least and (text[begin] >= FIRST_JOINING or text[begin - 1] >= FIRST_JOINING):
        begin -= 1
    # The search looks back itself where that matters: flags are paired from the first letter of their run.
    for character in GRAPHEME.finditer(text, begin):
        if character.end() >= at:
            return (at, at) if character.end() == at else character.span()
    return at, at


def in_whole_words(tokenizer: Tokenizer, text: str, best: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates as whole words, in their order. A candidate that then overlaps a better one is left out.

    A word is what the tokenizer cuts a text into before it cuts words into tokens.
    """
    found: list[Candidate] = []
    for each in best:
        start, end = whole_words(tokenizer, text, each.start, each.end)
        if not overlaps(wider := each._replace(start=start, end=end), found):
            found.append(wider)
    return found


def whole_words(tokenizer: Tokenizer, text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the words of a stretch of text begin and end. White space always ends a word."""
    begin, stop = start, end
    while begin > max(0, start - LONGEST_WORD_PART) and not text[begin - 1].isspace():
        begin -= 1
    while stop < min(len(text), end + LONGEST_WORD_PART) and not text[stop].isspace():
        stop += 1
    encoding = tokenizer.encode(text[begin:stop], add_special_tokens=False)
    tokens = [
        (word, begin + first, begin + last)
        for word, (first, last) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    words = {word for word, first, last in tokens if first < end and start < last and word is not None}
    inside = [(first, last) for word, first, last in tokens if word in words]
    return min([start, *(first for first, _ in inside)]), max([end, *(last for _, last in inside)])
