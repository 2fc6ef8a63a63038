"""The questions of a run: from a SQuAD-format file, from lines of JSON, or made to a stated distribution of lengths.

Requests take questions in a shuffled order, the same for the same seed. The answers of the idle service are stored
here, to compare answers under load with them.
"""

import gzip
import hashlib
import random
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from corelane.domain.dispatch import estimate, measure
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.schema import Spread, Workload
from corelane.plugins.lab.stats import spread
from corelane.tasks.question_answering.squad import SquadQuestion, read_questions

GZIP_MAGIC = b"\x1f\x8b"

#: Overlap of windows that the service's estimate assumes, in tokens: the default of a job.
DOC_STRIDE = 128

#: The spread of no values.
NONE = Spread(count=0, mean=0, p50=0, p90=0, p95=0, p99=0, max=0)

#: A request of a trace chooses among this many questions of about the wanted length.
NEIGHBOURS = 8


class Given(NamedTuple):
    """An answer for comparison: the place of its question in the request, and the span, or None for no answer."""

    place: int
    text: str | None
    start: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Questions:
    """Questions to ask, and the known facts about their answers."""

    asked: list[SquadQuestion]
    source: str
    seed: int = 0
    made_by_seed: bool = False
    may_be_unanswerable: bool = False
    #: The answers of the idle service, by place.
    idle: dict[int, Given] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    #: Whether answers under load are scored against references.
    is_scored: bool = True
    _order: list[int] = field(default_factory=list)
    _by_tokens: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.asked:
            raise InvalidInput(f"{self.source} has no questions")
        contexts = {each.context: 0.0 for each in self.asked}
        for context in contexts:
            contexts[context] = measure(context)
        self.tokens = [estimate(measure(each.question), contexts[each.context], DOC_STRIDE) for each in self.asked]
        self._order = list(range(len(self.asked)))
        random.Random(self.seed).shuffle(self._order)
        self._by_tokens = sorted((tokens, place) for place, tokens in enumerate(self.tokens))

    @property
    def has_answers(self) -> bool:
        """Whether there are reference answers to score against."""
        return any(each.gold for each in self.asked)

    @property
    def options(self) -> dict[str, Any]:
        """The options of requests: whether a question may have no answer, if its references say so."""
        return {"no_answer": self.may_be_unanswerable} if self.has_answers else {}

    @property
    def mean_tokens(self) -> float:
        """Mean of the estimated tokens of a question."""
        return sum(self.tokens) / len(self.tokens)

    def pick(self, number: int, items: int = 1, tokens: int | None = None) -> list[int]:
        """Return the places of the questions of a request; with ``tokens``, they have about that many in total."""
        if tokens is not None:
            return self._near(number, items, tokens)
        first = number * items
        return [self._order[(first + each) % len(self._order)] for each in range(items)]

    def distinct(self, requests: int, items: int) -> list[int]:
        """Return the places of the questions in ``requests`` requests, each once."""
        return self._order[: min(len(self._order), requests * items)]

    def describe(self) -> Workload:
        """Return the description of the questions for the report."""
        words = [len(each.context.split()) for each in self.asked]
        return Workload(
            source=self.source,
            hash=self._hash(),
            questions=len(self.asked),
            words=sum(words) + sum(len(each.question.split()) for each in self.asked),
            tokens=sum(self.tokens),
            context_words=spread(map(float, words)) or NONE,
            seed=self.seed if self.made_by_seed else None,
            has_answers=self.has_answers,
        )

    def _near(self, number: int, items: int, tokens: int) -> list[int]:
        at = bisect_left(self._by_tokens, (tokens // items, -1))
        first = max(0, min(at - NEIGHBOURS // 2, len(self._by_tokens) - NEIGHBOURS))
        near = self._by_tokens[first : first + NEIGHBOURS]
        return [near[(number * items + each) % len(near)][1] for each in range(items)]

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for each in self.asked:
            digest.update(orjson.dumps([each.question, each.context, each.gold]))
        return digest.hexdigest()[:16]


def read_file(path: Path, limit: int | None = None, seed: int = 0) -> Questions:
    """Read a file in SQuAD's or XQuAD's layout, or lines of JSON, gzipped or not; raise InvalidInput or SetupError."""
    content = _content(path)
    name = path.name
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = {}
    if isinstance(document, dict) and "data" not in document:
        return Questions(_read_lines(path, content)[:limit], name, seed)
    found = read_questions(document)
    return Questions(found.questions[:limit], name, seed, may_be_unanswerable=found.may_be_unanswerable)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read_lines(path: Path, content: bytes) -> list[SquadQuestion]:
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            given: dict[str, Any] = orjson.loads(line)
            texts = _references(given)
            found.append(SquadQuestion(str(given.get("id", number)), given["question"], given["context"], texts))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                f'{path}, line {number}: a line is {{"question": "…", "context": "…"}}, with `answers` if known'
            ) from None
    return found


def _references(given: dict[str, Any]) -> tuple[str, ...]:
    answers: Sequence[Any] = given.get("answers") or ([given["answer"]] if given.get("answer") else [])
    return tuple(str(each["text"]) if isinstance(each, dict) else str(each) for each in answers)
