"""SQuAD: its files, and the scores of its official evaluation (EM and F1, best over the gold answers).

Two layouts are read: SQuAD v1.1/v2.0 (articles, paragraphs, questions) and XQuAD's flat one (a list of questions with
their language). Scores agree with the official v2.0 script. An unanswerable question is right if it got no answer.
"""

import gzip
import re
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from corelane.errors import InvalidInput, SetupError

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SquadQuestion:
    """One question and its gold answers; none if it cannot be answered from its context."""

    id: str
    question: str
    context: str
    gold: tuple[str, ...]
    language: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A file's questions; ``may_be_unanswerable`` is true for v2.0, false if every question has an answer."""

    questions: list[SquadQuestion]
    may_be_unanswerable: bool


def read_set(path: Path, limit: int | None = None) -> QuestionSet:
    """Return the questions of a file, gzipped or not, the first ``limit`` if given.

    Raises InvalidInput that names the file, or SetupError if it cannot be read.
    """
    try:
        found = read_questions(orjson.loads(read_unzipped(path)))
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.detail}") from None
    return QuestionSet(found.questions[:limit], found.may_be_unanswerable)


def read_unzipped(path: Path) -> bytes:
    """Return the content of a file, gzipped or not; raise SetupError if it cannot be read."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_questions(document: object) -> QuestionSet:
    """Return the questions of a parsed file; raise InvalidInput if it has neither layout."""
    try:
        found = [*entries(document)]
        questions = [_question(entry) for entry in found]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"this is neither SQuAD's layout nor XQuAD's: {what_is_wrong(error)}") from None
    if not questions:
        raise InvalidInput("the file has no questions")
    return QuestionSet(questions, any("is_impossible" in entry for entry in found))


def entries(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each question of a parsed file, with its context.

    Raises KeyError, TypeError or AttributeError if the file has neither layout.
    """
    for article in document["data"]:
        if "paragraphs" not in article:
            yield article
            continue
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                yield {**entry, "context": paragraph["context"]}


def what_is_wrong(error: Exception) -> str:
    """Return why a file could not be read as questions."""
    if isinstance(error, KeyError):
        return f"something in it has no {error.args[0]!r}"
    return "it is not an object with `data`, a list of articles or of questions"


def _question(entry: Mapping[str, Any]) -> SquadQuestion:
    answers = [entry["answer"]] if "answers" not in entry else [answer["text"] for answer in entry["answers"]]
    texts = tuple(str(text) for text in answers)
    return SquadQuestion(str(entry["id"]), entry["question"], entry["context"], texts, entry.get("lang"))


def normalise(text: str) -> str:
    """Return text in SQuAD's form: lower case, no ASCII punctuation, no English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both are the same once normalised, else 0."""
    return float(normalise(prediction) == normalise(gold))


def token_f1(prediction: str, gold: str) -> float:
    """Return the F1 score over words. If either text has none, it is 1 only if both have none."""
    predicted, expected = normalise(prediction).split(), normalise(gold).split()
    if not predicted or not expected:
        return float(predicted == expected)
    shared = (Counter(predicted) & Counter(expected)).total()
    return 2 * shared / (len(predicted) + len(expected))


def best_over(measure: Callable[[str, str], float], prediction: str, golds: Iterable[str]) -> float:
    """Return the best score against any non-empty gold answer; against the empty answer if all are empty."""
    scorable = [gold for gold in golds if normalise(gold)] or [""]
    return max(measure(prediction, gold) for gold in scorable)
