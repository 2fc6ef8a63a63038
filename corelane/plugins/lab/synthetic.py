"""Questions made to a stated distribution of lengths, each with a known answer. Pure, and the same for the same seed.

A passage is sentences of real words, or sentences of the passages of a file, around one sentence that holds a fact. The
question asks for that fact. ``words=lognormal(120,0.6)`` has a median of 120 words; ``uniform(50,400)`` and
``normal(120,30)`` are as usual; ``words=120`` is one length for all. With ``tokens=…`` the estimated tokens of question
and passage are meant.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corelane.domain.dispatch import estimate_tokens
from corelane.errors import InvalidInput
from corelane.plugins.lab.workload import DOC_STRIDE, Questions
from corelane.tasks.question_answering.squad import SquadQuestion

#: Default number of questions.
COUNT = 200

#: Fewest words of a passage, so that a fact fits into it; and most words: 100,000 are a long book.
LEAST_WORDS, MOST_WORDS = 12, 100_000

SPEC = re.compile(r"(words|tokens)\s*=\s*(?:([a-z]+)\s*\(\s*([\d.]+)\s*,\s*([\d.]+)\s*\)|([\d.]+))")

SUBJECTS = ("The harbour", "A gardener", "The old railway", "Every winter the town", "The museum", "A young surveyor")
VERBS = ("kept", "repaired", "measured", "painted", "described", "sold", "visited", "carried")
OBJECTS = ("the northern gate", "three small boats", "a map of the valley", "the market hall", "its oldest letters")
ENDS = (
    *("before the first snow", "with the help of neighbours", "as the newspaper reported", "without much ado"),
    *("for almost a decade", "along the river", "in spite of the rain", "and told nobody"),
)

NAMES = ("Rosalind Vane", "Edgar Holt", "Miriam Castle", "Jonas Thorne", "Clara Whitlock", "Samuel Reed")
PLACES = ("attic", "lighthouse", "chapel", "granary", "observatory", "boathouse", "library", "mill")
TOWNS = ("Harlow", "Minster", "Eastbrook", "Calder", "Ashford", "Wexley")
THINGS = ("lanterns", "ropes", "barrels", "blankets", "compasses", "letters")


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence, the question about it, and the answer in it."""

    sentence: str
    question: str
    answer: str


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


def make_questions(text: str, count: int = COUNT, seed: int = 0, passages: Sequence[str] = ()) -> Questions:
    """Make questions of stated lengths; their filler is taken from ``passages`` if there are any."""
    lengths = parse_lengths(text)
    rng = random.Random(f"{seed}/{lengths.text}")
    filler = _sentences(passages)
    asked = [_make(number, lengths, rng, filler) for number in range(count)]
    source = f"synthetic {lengths.text}" + (" of a file's passages" if filler else "")
    return Questions(asked, source, seed, made_by_seed=True)


def _make(number: int, lengths: Lengths, rng: random.Random, filler: Sequence[str]) -> SquadQuestion:
    fact = _fact(rng)
    length = lengths.draw(rng)
    sentences = [fact.sentence]
    words = min(max(LEAST_WORDS, round(length)), MOST_WORDS)
    while sum(len(each.split()) for each in sentences) < words:
        sentences.append(rng.choice(filler) if filler else _sentence(rng))
    rng.shuffle(sentences)
    context = _cut(" ".join(sentences), fact.sentence, words)
    if lengths.unit == "tokens":
        while estimate_tokens(fact.question, context, DOC_STRIDE) > length and len(context.split()) > LEAST_WORDS:
            context = _cut(context, fact.sentence, len(context.split()) - 1)
    return SquadQuestion(f"made-{number}", fact.question, context, (fact.answer,))


def _cut(context: str, sentence: str, words: int) -> str:
    """Return a context cut to ``words`` words at its end, or at its start to keep the fact."""
    given = context.split()
    extra = len(given) - words
    if extra <= 0:
        return context
    after = len(context.partition(sentence)[2].split())
    last = len(given) - min(extra, after)
    return " ".join(given[extra - min(extra, after) : last])


def _fact(rng: random.Random) -> Fact:
    name, place, town, thing = (rng.choice(each) for each in (NAMES, PLACES, TOWNS, THINGS))
    year, count = rng.randint(1780, 1960), rng.randint(12, 980)
    return rng.choice(
        (
            Fact(f"The key to the {place} is with {name}.", f"Who has the key to the {place}?", name),
            Fact(f"The {place} of {town} was opened in {year}.", f"When was the {place} of {town} opened?", str(year)),
            Fact(f"The {place} holds {count} {thing}.", f"How many {thing} does the {place} hold?", str(count)),
        )
    )


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choice(each) for each in (SUBJECTS, VERBS, OBJECTS, ENDS)) + "."


def _sentences(passages: Sequence[str]) -> list[str]:
    parts = (part.strip() for passage in dict.fromkeys(passages) for part in re.split(r"(?<=[.!?])\s+", passage))
    return [part for part in parts if 3 <= len(part.split()) <= 60]
