"""Contexts in tokens, and the lately used ones kept: a passage asked about again is not tokenised again.

The bound is in tokens, least lately used goes first. A token kept costs 25 bytes of memory on English text: 4 of its
id, 8 of its place, most of the rest of the text itself. A context larger than the bound is read and not kept.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

#: A kept context costs at least this many tokens, and one for each four characters: without it, texts of few tokens or
#: none (control characters, words of a thousand letters) would be kept for nothing, for ever.
LEAST_TOKENS, CHARS_PER_TOKEN = 16, 4


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A context's tokens: their ids, and from where to where in the text each stands, one row of two a token."""

    ids: NDArray[np.int32]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, encoding: Encoding) -> Self:
        """What is needed of an encoding, in a quarter of its memory."""
        count = len(encoding)
        places = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.int32, count=2 * count)
        return cls(np.array(encoding.ids, dtype=np.int32), places.reshape(count, 2))

    def __len__(self) -> int:
        return len(self.ids)


class Contexts:
    """The contexts of one tokenizer, by their text. Not thread-safe."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._tokens = 0
        self._kept: OrderedDict[str, Context] = OrderedDict()

    def find(self, text: str) -> Context | None:
        """The context of a text, now the last to go; None if it is not kept."""
        context = self._kept.get(text)
        if context is not None:
            self._kept.move_to_end(text)
        return context

    def keep(self, text: str, context: Context) -> None:
        """Keep one more, in place of as many as it takes."""
        cost = _cost(text, context)
        if cost > self._most_tokens or text in self._kept:
            return
        self._tokens += cost
        self._kept[text] = context
        while self._tokens > self._most_tokens:
            self._tokens -= _cost(*self._kept.popitem(last=False))


def _cost(text: str, context: Context) -> int:
    return max(LEAST_TOKENS, len(context), len(text) // CHARS_PER_TOKEN)
