"""What is asked: items with the tokens of their windows, and the requests that bring them. Pure.

Lengths are estimates from the texts, as the service makes them, times the ratio that the profile found between tokens
read and tokens estimated. A trace may say tokens itself; where it does not, items are drawn from the mix.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from corelane.domain.arrivals import Due
from corelane.domain.dispatch import MIN_CONTEXT_SHARE, SPECIAL_TOKENS, count_windows, measure, overlap
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.lane import Windows
from corelane.plugins.lab.planning.simulate import Arrival

#: Overlap of windows where a job does not say another, in tokens.
DOC_STRIDE = 128


@dataclass(frozen=True, slots=True)
class Lengths:
    """The estimated tokens of one item's question and context."""

    question: float
    context: float

    def windows(self, ratio: float, longest: int, doc_stride: int = DOC_STRIDE) -> Windows:
        """Return the tokens of its windows, where none is longer than ``longest``."""
        beside = min(SPECIAL_TOKENS + ratio * self.question, longest * (1 - MIN_CONTEXT_SHARE))
        room, left = longest - beside, ratio * self.context
        count = count_windows(left, room, doc_stride)
        if count == 1:
            return (min(longest, math.ceil(beside + left)),)
        last = left - (count - 1) * (room - overlap(room, doc_stride))
        return (*[longest] * (count - 1), min(longest, math.ceil(beside + last)))


def lengths_of(questions: Iterable[tuple[str, str]]) -> list[Lengths]:
    """Return the lengths of questions with their contexts; a context that comes again is measured once."""
    contexts: dict[str, float] = {}
    found = []
    for question, context in questions:
        if context not in contexts:
            contexts[context] = measure(context)
        found.append(Lengths(measure(question), contexts[context]))
    if not found:
        raise InvalidInput("the mix has no questions")
    return found


@dataclass(frozen=True, slots=True)
class Mix:
    """Items to draw from, each with the tokens of its windows."""

    items: Sequence[Windows]
    longest: int
    ratio: float = 1.0

    @classmethod
    def of(cls, lengths: Iterable[Lengths], ratio: float, longest: int) -> "Mix":
        """Return the mix as a model with windows of ``longest`` tokens reads it."""
        return cls([each.windows(ratio, longest) for each in lengths], longest, ratio)

    @property
    def tokens(self) -> float:
        """Return the mean tokens of an item."""
        return sum(map(sum, self.items)) / len(self.items)

    @property
    def windows(self) -> float:
        """Return the mean windows of an item."""
        return sum(map(len, self.items)) / len(self.items)

    def arrivals(self, due: Iterable[Due], *, seed: int = 0, items: int = 1) -> Iterator[Arrival]:
        """Return requests at these times: of ``items`` from the mix, or as large as the trace has them."""
        dice = random.Random(f"items {seed}")
        for each in due:
            count = each.items or items
            if each.tokens is None:
                yield Arrival(each.at_s, dice.choices(self.items, k=count))
            else:
                tokens = math.ceil(self.ratio * each.tokens / count)
                yield Arrival(each.at_s, [cut(tokens, self.longest)] * count)


def cut(tokens: int, longest: int) -> Windows:
    """Return windows of so many tokens in all; all but the last are full."""
    count, rest = divmod(max(1, tokens), longest)
    return (*[longest] * count, *([rest] if rest else []))


#: What passages that are made up say, again and again.
PASSAGE = "The keeper of the archive notes each letter that comes to the harbour town by ship or by road."

#: Words of the passages that are asked about where no file is given.
PASSAGE_WORDS = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)


def default_questions() -> list[tuple[str, str]]:
    """Return questions on passages of even lengths: so each shape of a model is met."""
    words = PASSAGE.split()
    found = []
    for number, count in enumerate(PASSAGE_WORDS):
        text = " ".join(words[(number + n) % len(words)] for n in range(count))
        found.append((f"Who notes letter {number}?", f"{text}. Letter {number} was noted by Rosalind Vane."))
    return found
