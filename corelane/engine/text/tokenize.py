"""Tokenizes texts, caches them for later queries, and cuts them into windows that fit the model.

A passage that its owner asks about again is not tokenized again. For another owner it is: the time saved would reveal
that another owner asked about it. The cache is bounded in tokens. The least recently used context is dropped first, and
one above the bound is not cached. A cached token costs 25 bytes of memory on English text: 4 for its id, 8 for its
place, most of the rest for the text itself.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from corelane.domain.dispatch import MIN_TEXT_SHARE, count_windows, overlap
from corelane.engine.windows import Window
from corelane.errors import QuestionTooLong, TooManyWindows

#: A cached context counts as at least ``LEAST_TOKENS``, and as one token for each ``CHARS_PER_TOKEN`` characters.
#: Otherwise texts with few tokens or none (control characters, words of a thousand letters) would be cached without
#: limit.
LEAST_TOKENS, CHARS_PER_TOKEN = 16, 4

#: The owner of a text, and the text.
Passage = tuple[str, str]

#: Remedies for too many windows, by what limits them. A shorter passage or question helps in all cases.
REMEDIES = {
    "setting": "give a smaller `doc_stride`, or have the operator raise CORELANE_MAX_WINDOWS",
    "max_windows": "or raise `max_windows`",
    "truncation": "or leave `truncation` at `windows`",
}


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A text's tokens: their ids, and where each starts and ends in the text, one row of two per token."""

    ids: NDArray[np.int32]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, encoding: Encoding) -> Self:
        """Make a context of an encoding's ids and places, in a quarter of the encoding's memory."""
        count = len(encoding)
        places = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.int32, count=2 * count)
        return cls(np.array(encoding.ids, dtype=np.int32), places.reshape(count, 2))

    def __len__(self) -> int:
        return len(self.ids)


#: The places of tokens whose text this core does not have.
NO_PLACES: NDArray[np.int32] = np.zeros((0, 2), dtype=np.int32)


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Context]:
    """Return the tokens of each text, without special tokens."""
    return [Context.of(encoding) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


class ContextCache:
    """The contexts of one tokenizer, by owner and text. Not thread-safe."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._tokens = 0
        self._kept: OrderedDict[Passage, Context] = OrderedDict()

    def find(self, passage: Passage) -> Context | None:
        """Return the cached context of a passage, and mark it as the most recently used; None if it is not cached."""
        context = self._kept.get(passage)
        if context is not None:
            self._kept.move_to_end(passage)
        return context

    def keep(self, passage: Passage, context: Context) -> None:
        """Cache a context, and drop others to make room."""
        cost = _cost(passage, context)
        if cost > self._most_tokens or passage in self._kept:
            return
        self._tokens += cost
        self._kept[passage] = context
        while self._tokens > self._most_tokens:
            self._tokens -= _cost(*self._kept.popitem(last=False))


def _cost(passage: Passage, context: Context) -> int:
    _, text = passage
    return max(LEAST_TOKENS, len(context), len(text) // CHARS_PER_TOKEN)


def cut_windows(
    question_tokens: int,
    context_tokens: int,
    *,
    max_length: int,
    specials: int,
    doc_stride: int,
    most: float = math.inf,
    bound: str = "setting",
) -> list[Window]:
    """Cut a context into windows of ``[CLS] question [SEP] stretch [SEP]`` that cover all of it, in order.

    Neighbours overlap by ``doc_stride`` tokens, but at most by half a window, so that an answer near an edge is whole
    in one of them. A context without tokens (only control characters) has one empty window. Raises QuestionTooLong, or
    TooManyWindows beyond ``most``; ``bound`` says which of ``REMEDIES`` set that limit.
    """
    room = _room(question_tokens, max_length, specials)
    if context_tokens <= room:
        return [Window(0, context_tokens, specials + question_tokens + context_tokens)]
    count = count_windows(context_tokens, room, doc_stride)
    if count > most:
        raise TooManyWindows(
            f"the passage has {context_tokens:,} tokens, which take {count:,} windows of {room:,} beside this "
            f"question, and {most:,.0f} are read of one item: cut the passage into several items, shorten the "
            f"question, {REMEDIES[bound]}"
        )
    step = room - overlap(room, doc_stride)
    stretches = [(start, min(start + room, context_tokens)) for start in range(0, count * step, step)]
    return [Window(start, end, specials + question_tokens + end - start) for start, end in stretches]


def known_windows(
    question_tokens: int, context_tokens: int, *, max_length: int, specials: int, doc_stride: int
) -> list[Window]:
    """Return the windows that are certain, whatever follows the first ``context_tokens`` tokens of a context.

    Raises QuestionTooLong.
    """
    room = _room(question_tokens, max_length, specials)
    step = room - overlap(room, doc_stride)
    count = max(0, 1 + (context_tokens - room) // step)
    return [Window(start, start + room, specials + question_tokens + room) for start in range(0, count * step, step)]


def _room(question_tokens: int, max_length: int, specials: int) -> int:
    """Return how many tokens of context a window holds beside a question; raise QuestionTooLong if too few."""
    room = max_length - specials - question_tokens
    if room < max_length * MIN_TEXT_SHARE:
        limit = int(max_length * (1 - MIN_TEXT_SHARE)) - specials
        raise QuestionTooLong(
            f"the question has {question_tokens} tokens; this model's windows of {max_length} leave room for {limit}: "
            "shorten the question"
        )
    return room
