"""Tokenizes texts, and caches their tokens for later items.

A text that an owner sends again is not tokenized again. If another owner sends the text, it is: the time saved would
reveal that it was sent before. The cache is bounded in tokens. The least recently used text is dropped first. A text
above the bound is not cached. A cached token costs 25 bytes of memory on English text: 4 for its id, 8 for its place,
most of the rest for the text itself.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

#: Each cached text counts ``TEXT_TOKENS`` for its key and arrays (0.6 kB), and its tokens, but at least one for every
#: ``CHARS_PER_TOKEN`` characters: control characters and words of a thousand letters make few tokens or none.
TEXT_TOKENS, CHARS_PER_TOKEN = 24, 4

#: The owner of a text, and the text.
Passage = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """A text's tokens: their ids, and where each starts and ends in the text, one row of two per token."""

    ids: NDArray[np.int32]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, encoding: Encoding) -> Self:
        """Make it of an encoding's ids and places, in a quarter of the encoding's memory."""
        count = len(encoding)
        places = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.int32, count=2 * count)
        return cls(np.array(encoding.ids, dtype=np.int32), places.reshape(count, 2))

    def __len__(self) -> int:
        return len(self.ids)


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[TextTokens]:
    """Return the tokens of each text, without special tokens."""
    return [TextTokens.of(encoding) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


class TokenCache:
    """The tokens of texts by one tokenizer, by owner and text. Not thread-safe."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._tokens = 0
        self._kept: OrderedDict[Passage, TextTokens] = OrderedDict()

    def find(self, passage: Passage) -> TextTokens | None:
        """Return the cached tokens of a passage, and mark it as the most recently used; None if it is not cached."""
        tokens = self._kept.get(passage)
        if tokens is not None:
            self._kept.move_to_end(passage)
        return tokens

    def keep(self, passage: Passage, tokens: TextTokens) -> None:
        """Cache a text, and drop others to make room."""
        cost = _cost(passage, tokens)
        if cost > self._most_tokens or passage in self._kept:
            return
        self._tokens += cost
        self._kept[passage] = tokens
        while self._tokens > self._most_tokens:
            self._tokens -= _cost(*self._kept.popitem(last=False))


def _cost(passage: Passage, tokens: TextTokens) -> int:
    _, text = passage
    return TEXT_TOKENS + max(len(tokens), len(text) // CHARS_PER_TOKEN)
