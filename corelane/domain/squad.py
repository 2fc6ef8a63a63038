"""SQuAD: its files, and the scores of its official evaluation (EM and F1, best over the references). Pure.

Two layouts are read: SQuAD v1.1/v2.0 (articles, paragraphs, questions) and XQuAD's flat one (a list of questions with
their language). Scores agree with the official v2.0 script; an unanswerable question is right if it got no answer.
"""

import gzip
import re
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from corelane.domain.jobs import JobStatus, Result
from corelane.errors import InvalidInput, SetupError

#: Bins of equal width for confidences, as in Guo et al., 2017.
BINS = 10

ARTICLES = re.compile(r"\b(a|an|the)\b")
GZIP_MAGIC = b"\x1f\x8b"

PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Question:
    """One question and its reference answers; none if it cannot be answered from its context."""

    id: str
    question: str
    context: str
    references: tuple[str, ...]
    language: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A file's questions; ``may_be_unanswerable`` tells v2.0 from files where every question has its answer."""

    questions: list[Question]
    may_be_unanswerable: bool


@dataclass(frozen=True, slots=True)
class ScoredResult:
    """The scores of one question. ``prediction`` is empty where no answer was given.

    ``confidence`` is the answer's score, or the no-answer score where none was given; None if the question failed.
    """

    question: Question
    prediction: str
    exact: float
    f1: float
    failure: str | None
    offsets_given: int
    offsets_wrong: int
    confidence: float | None = None
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over some results: EM and F1 in percent, counts of the rest."""

    questions: int
    exact: float
    f1: float
    failed: int
    offsets_given: int
    offsets_wrong: int


def read_document(path: Path) -> object:
    """Return the content of a JSON file, gzipped or not."""
    try:
        content = path.read_bytes()
        return orjson.loads(gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_questions(document: object) -> QuestionSet:
    """Return the questions of a parsed file; raise InvalidInput if it has neither layout."""
    try:
        data = document["data"]  # type: ignore[index]
        is_flat = bool(data) and "paragraphs" not in data[0]
        entries = list(_read_flat(data) if is_flat else _read_articles(data))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInput(f"this is neither SQuAD's layout nor XQuAD's: {what_is_wrong(error)}") from None
    if not entries:
        raise InvalidInput("the file has no questions")
    return QuestionSet([question for question, _ in entries], any(marked for _, marked in entries))


def what_is_wrong(error: Exception) -> str:
    """Return why a file could not be read as questions."""
    if isinstance(error, KeyError):
        return f"something in it has no {error.args[0]!r}"
    return "it is not an object with `data`, a list of articles or of questions"


def _read_articles(data: Iterable[Any]) -> Iterator[tuple[Question, bool]]:
    for article in data:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                texts = tuple(str(answer["text"]) for answer in entry["answers"])
                question = Question(str(entry["id"]), entry["question"], paragraph["context"], texts)
                yield question, "is_impossible" in entry


def _read_flat(data: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Question, bool]]:
    for entry in data:
        texts = (str(entry["answer"]),)
        yield Question(str(entry["id"]), entry["question"], entry["context"], texts, entry.get("lang")), False


def normalise(text: str) -> str:
    """Return text in SQuAD's form: lower case, no ASCII punctuation, no English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, reference: str) -> float:
    """Return 1 if both are the same once normalised, else 0."""
    return float(normalise(prediction) == normalise(reference))


def token_f1(prediction: str, reference: str) -> float:
    """Return the F1 over words; where either text has none, 1 only if both have none."""
    predicted, expected = normalise(prediction).split(), normalise(reference).split()
    if not predicted or not expected:
        return float(predicted == expected)
    shared = (Counter(predicted) & Counter(expected)).total()
    return 2 * shared / (len(predicted) + len(expected))


def best_over(measure: Callable[[str, str], float], prediction: str, references: Iterable[str]) -> float:
    """Return the best score against any reference that is not empty; against the empty answer if all are."""
    scorable = [reference for reference in references if normalise(reference)] or [""]
    return max(measure(prediction, reference) for reference in scorable)


def rightness(text: str, references: Sequence[str]) -> tuple[bool, float]:
    """Return whether a span is exactly right, and its F1; no span is where there is no answer."""
    if not references:
        return False, 0.0
    return best_over(exact_match, text, references) == 1, best_over(token_f1, text, references)


def judge(question: Question, result: Result) -> ScoredResult:
    """Score one result, and check the offsets of each of its answers."""
    prediction = result.answer.text if result.answer else ""
    candidates = (result.answer, *result.answers)
    given = {(answer.start, answer.end, answer.text) for answer in candidates if answer is not None}
    failure = None
    if result.status is not JobStatus.SUCCEEDED:
        failure = result.error.detail if result.error else f"it was {result.status}"
    return ScoredResult(
        question=question,
        prediction=prediction,
        exact=best_over(exact_match, prediction, question.references) if failure is None else 0.0,
        f1=best_over(token_f1, prediction, question.references) if failure is None else 0.0,
        failure=failure,
        offsets_given=len(given),
        offsets_wrong=sum(question.context[start:end] != text for start, end, text in given),
        confidence=None if failure is not None else result.answer.score if result.answer else result.no_answer_score,
        answered=result.answer is not None,
    )


def summarise(outcomes: Iterable[ScoredResult]) -> Scores:
    """Return the means; zeros for no results."""
    kept = list(outcomes)
    count = max(len(kept), 1)
    return Scores(
        questions=len(kept),
        exact=100 * sum(each.exact for each in kept) / count,
        f1=100 * sum(each.f1 for each in kept) / count,
        failed=sum(each.failure is not None for each in kept),
        offsets_given=sum(each.offsets_given for each in kept),
        offsets_wrong=sum(each.offsets_wrong for each in kept),
    )


@dataclass(frozen=True, slots=True)
class PrecisionPoint:
    """The effect of a ``min_precision`` on some questions: the share that is answered, and how much of it is right."""

    min_precision: float
    answered: int
    coverage: float
    precision: float | None


def calibration_error(pairs: Sequence[tuple[float, float]], bins: int = BINS) -> float:
    """Return the ECE of (confidence, 1 if right else 0): the mean distance of the two in each bin; 0 for no pairs."""
    gaps = [0.0] * bins
    for confidence, right in pairs:
        gaps[min(int(confidence * bins), bins - 1)] += confidence - right
    return sum(abs(gap) for gap in gaps) / max(len(pairs), 1)


def precision(outcomes: Iterable[ScoredResult]) -> float | None:
    """Return the share of given answers that are exactly right; None where none was given."""
    given = [each.exact for each in outcomes if each.answered]
    return sum(given) / len(given) if given else None


def precision_curve(pairs: Sequence[tuple[float, bool]], asked: Iterable[float]) -> list[PrecisionPoint]:
    """Return the effect of each ``min_precision`` on questions whose best answers have these scores, right or not."""
    found = []
    for least in asked:
        given = [right for score, right in pairs if score >= least]
        share = sum(given) / len(given) if given else None
        found.append(PrecisionPoint(least, len(given), len(given) / max(len(pairs), 1), share))
    return found
