"""Estimate what items cost, in tokens that a model computes. Pure; no tokenizer where jobs are taken in.

A core reads every window of every item, so an item costs the tokens of its windows. A context that many items share is
stored, measured and tokenised once, but its windows are computed once for each question. The core that reads an item
corrects the estimate (``Dispatch.exchange``).
"""

import math
from collections.abc import Mapping
from string import ascii_letters, digits, whitespace

from corelane.domain.jobs import Item

#: English text has about four characters to a WordPiece token (measured on SQuAD: 4.3).
CHARS_PER_TOKEN = 4

#: The same with punctuation left out, which has a token for each character.
WORD_CHARS_PER_TOKEN = 5

#: The length of the shortest bucket of the default ladder.
LEAST_TOKENS = 64

#: The length of its longest bucket: the estimate knows no model.
WINDOW_TOKENS = 384

#: [CLS] question [SEP] context [SEP].
SPECIAL_TOKENS = 3

#: A window gives at least this share of its tokens to the context, or the item is refused: with less, a long
#: document would cost more windows than its answer is worth.
MIN_CONTEXT_SHARE = 1 / 4

#: Texts of up to this many characters fit one window. Most items of a flood do, and are estimated faster.
SHORT_CHARS = 256

#: Every byte of UTF-8 that is no ASCII punctuation.
NO_MARKS = f"{ascii_letters}{digits}{whitespace}".encode() + bytes(range(128, 256))


def measure(text: str) -> float:
    """Estimate the tokens of a text.

    Characters beyond ASCII are counted as a token for each two bytes they need over one, which is exact for
    CJK (three bytes, one token a character) and generous for accented letters.
    """
    encoded = text.encode()
    chars = len(text)
    marks = len(encoded.translate(None, NO_MARKS))
    # The second is the greater one where there are more marks than one in sixteen characters.
    tokens = chars / CHARS_PER_TOKEN if 16 * marks <= chars else marks + (chars - marks) / WORD_CHARS_PER_TOKEN
    return tokens + (len(encoded) - chars) / 2


def estimate_short(text: str) -> int:
    """Estimate an item whose question and context are ``text`` together, at most ``SHORT_CHARS``: it has one window."""
    return max(LEAST_TOKENS, math.ceil(SPECIAL_TOKENS + measure(text)))


def count_windows(context_tokens: float, room: float, doc_stride: int) -> int:
    """Count the windows that cover a context, where each has ``room`` for it and neighbours overlap."""
    if context_tokens <= room:
        return 1
    return 1 + math.ceil((context_tokens - room) / (room - overlap(room, doc_stride)))


def overlap(room: float, doc_stride: int) -> int:
    """Tokens that neighbouring windows share: a stride of more than half a window is cut to half."""
    return min(doc_stride, int(room // 2))


def estimate(question_tokens: float, context_tokens: float, doc_stride: int) -> int:
    """Estimate the tokens of an item's windows.

    Never less than the shortest bucket, which the shortest item fills with padding. A question that leaves a window too
    little room for its context is refused when it is read: no window ever holds more of it.
    """
    beside = min(SPECIAL_TOKENS + question_tokens, WINDOW_TOKENS * (1 - MIN_CONTEXT_SHARE))
    room = WINDOW_TOKENS - beside
    windows = count_windows(context_tokens, room, doc_stride)
    repeated = (windows - 1) * overlap(room, doc_stride)
    return max(LEAST_TOKENS, math.ceil(windows * beside + context_tokens + repeated))


def estimate_tokens(question: str, context: str, doc_stride: int) -> int:
    """Estimate the tokens of an item from its texts."""
    if len(text := question + context) <= SHORT_CHARS:
        return estimate_short(text)
    return estimate(measure(question), measure(context), doc_stride)


class Estimator:
    """Estimates the items of one job; each context that they share is measured once."""

    def __init__(self, contexts: Mapping[str, str], doc_stride: int) -> None:
        self._contexts = {context_id: measure(text) for context_id, text in contexts.items()}
        self._doc_stride = doc_stride

    def tokens(self, item: Item) -> int:
        """Estimate an item, whichever way its context is given."""
        if item.context is not None and len(text := item.question + item.context) <= SHORT_CHARS:
            return estimate_short(text)
        context = measure(item.context) if item.context is not None else self._contexts[item.context_id or ""]
        return estimate(measure(item.question), context, self._doc_stride)
