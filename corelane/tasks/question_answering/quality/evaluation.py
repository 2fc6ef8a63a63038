"""Evaluate results of questions: questions and results in, metrics out. Pure.

`eval`, the gate between two versions and `calibrate` use it. EM and F1 are those of SQuAD's official
evaluation (``corelane.tasks.question_answering.squad``).

The answers of a version depend on its threshold, so F1 alone can mislead: a version that says "no answer" more often
looks better or worse just because of that. So each version is also measured at fixed operating points: the threshold is
set so that a stated share of unanswerable questions gets none, and F1 is taken over the answerable ones there.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from corelane.domain.jobs import JobStatus
from corelane.tasks.question_answering.squad import SquadQuestion, best_over, exact_match, normalise, token_f1
from corelane.tasks.question_answering.wire import AnswerResult

#: Bins of equal width for confidences, as in Guo et al., 2017.
BINS = 10

#: Shares of unanswerable questions that get no answer, at which F1 is compared.
OPERATING_POINTS = (0.6, 0.8)


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of one question. ``prediction`` is empty where no answer was given.

    ``confidence`` is the answer's score, or the no-answer score where none was given; None if the question failed.
    ``margin`` is the best span's score minus the no-answer score, from -1 to 1. ``best_f1`` is the best span's F1, even
    if it was not given. A result that failed has the lowest margin and no right answer.
    """

    question: SquadQuestion
    prediction: str
    exact: float
    f1: float
    failure: str | None
    offsets_given: int
    offsets_wrong: int
    confidence: float | None
    answered: bool
    margin: float
    best_f1: float

    @property
    def answer(self) -> str:
        """The answer in SQuAD's form; empty for none."""
        return normalise(self.prediction)


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over some questions: EM and F1 in percent, counts of the rest."""

    questions: int
    exact: float
    f1: float
    failed: int
    offsets_given: int
    offsets_wrong: int


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """F1 over answerable questions, in percent, if this share of the unanswerable ones gets no answer."""

    no_answer_accuracy: float
    f1: float
    answered: float


@dataclass(frozen=True, slots=True)
class Metrics(Scores):
    """The quality of results; EM, F1 and accuracy in percent, None if a figure has no questions.

    ``answerable_f1`` is over the answerable questions. So is ``always_f1``, with the best span as each answer.
    ``precision`` is the share of given answers that are exactly right. ``ece`` is the expected calibration error.
    """

    answerable_f1: float | None
    always_f1: float | None
    no_answer_accuracy: float | None
    answered: float
    precision: float | None
    operating_points: tuple[OperatingPoint, ...]
    ece: float


@dataclass(frozen=True, slots=True)
class PrecisionPoint:
    """The effect of a ``min_precision``: how many questions are answered, and the share of right answers in these."""

    min_precision: float
    answered: int
    coverage: float
    precision: float | None


def evaluate(questions: Sequence[SquadQuestion], results: Sequence[AnswerResult]) -> Metrics:
    """Return the metrics of results; questions and results are in the same order."""
    return measure(score_all(questions, results))


def score_all(questions: Sequence[SquadQuestion], results: Sequence[AnswerResult]) -> list[Scored]:
    """Score the results of questions, in the same order."""
    return [score(*pair) for pair in zip(questions, results, strict=True)]


def score(question: SquadQuestion, result: AnswerResult) -> Scored:
    """Score one result, and check the offsets of each of its answers."""
    prediction = result.answer.text if result.answer else ""
    given = {(each.start, each.end, each.text) for each in (result.answer, *result.answers) if each is not None}
    failure, confidence, margin, best_f1 = None, None, -1.0, 0.0
    if result.status is not JobStatus.SUCCEEDED:
        failure = result.error.detail if result.error else f"it was {result.status}"
    else:
        confidence = result.answer.score if result.answer else result.no_answer_score
        best = result.answers[0] if result.answers else result.answer
        margin = (best.score if best else 0.0) - (result.no_answer_score or 0.0)
        best_f1 = rightness(best.text if best else "", question.gold)[1]
    return Scored(
        question=question,
        prediction=prediction,
        exact=best_over(exact_match, prediction, question.gold) if failure is None else 0.0,
        f1=best_over(token_f1, prediction, question.gold) if failure is None else 0.0,
        failure=failure,
        offsets_given=len(given),
        offsets_wrong=sum(question.context[start:end] != text for start, end, text in given),
        confidence=confidence,
        answered=result.answer is not None,
        margin=margin,
        best_f1=best_f1,
    )


def rightness(text: str, gold: Sequence[str]) -> tuple[bool, float]:
    """Return whether a span is exactly right, and its F1; an empty one is right if there is no answer."""
    if not gold:
        return False, 0.0
    return best_over(exact_match, text, gold) == 1, best_over(token_f1, text, gold)


def measure(scored: Sequence[Scored]) -> Metrics:
    """Return the metrics of scored results."""
    total = means(scored)
    answerable, unanswerable = split(scored)
    given = [each.exact for each in scored if each.answered]
    return Metrics(
        **asdict(total),
        answerable_f1=means(answerable).f1 if answerable else None,
        always_f1=100 * sum(each.best_f1 for each in answerable) / len(answerable) if answerable else None,
        no_answer_accuracy=means(unanswerable).exact if unanswerable else None,
        answered=len(given) / max(len(scored), 1),
        precision=sum(given) / len(given) if given else None,
        operating_points=tuple(operating_points(answerable, unanswerable)),
        ece=calibration_error([(each.confidence, each.exact) for each in scored if each.confidence is not None]),
    )


def means(scored: Sequence[Scored]) -> Scores:
    """Return the means; zeros for no results."""
    count = max(len(scored), 1)
    return Scores(
        questions=len(scored),
        exact=100 * sum(each.exact for each in scored) / count,
        f1=100 * sum(each.f1 for each in scored) / count,
        failed=sum(each.failure is not None for each in scored),
        offsets_given=sum(each.offsets_given for each in scored),
        offsets_wrong=sum(each.offsets_wrong for each in scored),
    )


def split(scored: Sequence[Scored]) -> tuple[list[Scored], list[Scored]]:
    """Return the answerable and the unanswerable questions."""
    return [each for each in scored if each.question.gold], [each for each in scored if not each.question.gold]


def operating_points(answerable: Sequence[Scored], unanswerable: Sequence[Scored]) -> Iterable[OperatingPoint]:
    """Yield F1 at each fixed operating point; none if there are only answerable or only unanswerable questions."""
    if not answerable or not unanswerable:
        return
    ranked = sorted(each.margin for each in unanswerable)
    for share in OPERATING_POINTS:
        # Answers are given above the margin that this share of the unanswerable questions stays at or below.
        least = ranked[math.ceil(share * len(ranked)) - 1]
        given = [each for each in answerable if each.margin > least]
        yield OperatingPoint(
            share, 100 * sum(each.best_f1 for each in given) / len(answerable), len(given) / len(answerable)
        )


def calibration_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the ECE of (confidence, 1 if right else 0): the mean distance of the two in each bin; 0 for no pairs."""
    gaps = [0.0] * BINS
    for confidence, right in pairs:
        gaps[min(int(confidence * BINS), BINS - 1)] += confidence - right
    return sum(abs(gap) for gap in gaps) / max(len(pairs), 1)


def precision_curve(pairs: Sequence[tuple[float, bool]], asked: Iterable[float]) -> list[PrecisionPoint]:
    """Return the effect of each ``min_precision``; each pair is a best answer's score, and whether it is right."""
    found = []
    for least in asked:
        given = [right for score, right in pairs if score >= least]
        share = sum(given) / len(given) if given else None
        found.append(PrecisionPoint(least, len(given), len(given) / max(len(pairs), 1), share))
    return found
