"""Items made to a stated distribution of lengths. Pure, and the same for the same seed.

A text is sentences of real words, or sentences of the texts of a file; the task makes an item of it, perhaps around a
sentence of its own. ``words=lognormal(120,0.6)`` has a median of 120 words; ``uniform(50,400)`` and ``normal(120,30)``
are as usual; ``words=120`` is one length for all. With ``tokens=…`` the estimated tokens of the item are meant.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput
from corelane.plugins.lab.workload import Workload, bench_of

#: Default number of items.
COUNT = 200

#: Fewest words of a text, so that a sentence fits into it; and most words: 100,000 are a long book.
LEAST_WORDS, MOST_WORDS = 12, 100_000

SPEC = re.compile(r"(words|tokens)\s*=\s*(?:([a-z]+)\s*\(\s*([\d.]+)\s*,\s*([\d.]+)\s*\)|([\d.]+))")

SUBJECTS = ("The harbour", "A gardener", "The old railway", "Every winter the town", "The museum", "A young surveyor")
VERBS = ("kept", "repaired", "measured", "painted", "described", "sold", "visited", "carried")
OBJECTS = ("the northern gate", "three small boats", "a map of the valley", "the market hall", "its oldest letters")
ENDS = (
    *("before the first snow", "with the help of neighbours", "as the newspaper reported", "without much ado"),
    *("for almost a decade", "along the river", "in spite of the rain", "and told nobody"),
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths, in words or estimated tokens."""

    text: str
    unit: str
    draw: Callable[[random.Random], float]


def parse_lengths(text: str) -> Lengths:
    """Return the distribution that a text such as ``words=lognormal(120,0.6)`` states; raise InvalidInput."""
    found = SPEC.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidInput(f"{text!r} is no distribution of lengths: write words=lognormal(120,0.6), or tokens=128")
    unit, name = found[1], found[2]
    try:
        a, b = (float(found[5]), 0.0) if name is None else (float(found[3]), float(found[4]))
    except ValueError:
        raise InvalidInput(f"{text!r}: a length is a number") from None
    draws: dict[str | None, Callable[[random.Random], float]] = {
        None: lambda _: a,
        "lognormal": lambda rng: rng.lognormvariate(math.log(a), b),
        "uniform": lambda rng: rng.uniform(a, b),
        "normal": lambda rng: rng.gauss(a, b),
    }
    if name not in draws or not 1 <= a <= MOST_WORDS or (name == "uniform" and b < a):
        raise InvalidInput(f"{text!r}: lengths are lognormal(median, sigma), uniform(least, most) or normal(mean, sd)")
    return Lengths(text.strip(), unit, draws[name])


def make_items(
    text: str, count: int = COUNT, seed: int = 0, texts: Sequence[str] = (), task: str = DEFAULT_TASK
) -> Workload:
    """Make items of stated lengths; their texts are made of the sentences of ``texts`` if there are any."""
    lengths, bench = parse_lengths(text), bench_of(task)
    rng = random.Random(f"{seed}/{lengths.text}")
    parts = (part.strip() for text in dict.fromkeys(texts) for part in re.split(r"(?<=[.!?])\s+", text))
    filler = [part for part in parts if 3 <= len(part.split()) <= 60]

    def make_text(kept: str, tokens_with: Callable[[str], int]) -> str:
        length = lengths.draw(rng)
        sentences = [kept] if kept else []
        words = min(max(LEAST_WORDS, round(length)), MOST_WORDS)
        while sum(len(each.split()) for each in sentences) < words:
            sentences.append(rng.choice(filler) if filler else make_sentence(rng))
        rng.shuffle(sentences)
        text = _cut(" ".join(sentences), kept, words)
        if lengths.unit == "tokens":
            while tokens_with(text) > length and len(text.split()) > LEAST_WORDS:
                text = _cut(text, kept, len(text.split()) - 1)
        return text

    asked = [bench.make(rng, make_text) for _ in range(count)]
    source = f"synthetic {lengths.text}" + (" of a file's texts" if filler else "")
    return Workload(asked, source, seed, task, bench.options(asked), made_by_seed=True)


def make_sentence(rng: random.Random) -> str:
    """Make a sentence of real words."""
    return " ".join(rng.choice(each) for each in (SUBJECTS, VERBS, OBJECTS, ENDS)) + "."


def _cut(text: str, kept: str, words: int) -> str:
    """Return a text cut to ``words`` words at its end, or at its start to keep a sentence."""
    given = text.split()
    extra = len(given) - words
    if extra <= 0:
        return text
    after = len((text.partition(kept)[2] if kept else text).split())
    last = len(given) - min(extra, after)
    return " ".join(given[extra - min(extra, after) : last])
