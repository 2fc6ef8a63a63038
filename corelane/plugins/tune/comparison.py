"""Two versions compared on the same questions: how right each is, where they differ, and whether that is allowed. Pure.

What a version answers by default depends on its threshold, so F1 alone hides much: a version that says "no answer" more
often looks better or worse by that alone. Each is therefore also read at fixed operating points: the threshold is set
so that a stated share of unanswerable questions gets none, and F1 is taken over the answerable ones there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.jobs import JobStatus, Result
from corelane.domain.squad import (
    Question,
    ScoredResult,
    best_over,
    calibration_error,
    judge,
    normalise,
    summarise,
    token_f1,
)

#: Shares of unanswerable questions that get no answer, at which F1 is compared.
OPERATING_POINTS = (0.6, 0.8)

#: What the check of the calibration error is called in reports.
ECE_RISEN = "ECE risen"

#: Half the width of a normal distribution's interval that holds 95 %, in standard deviations.
Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class Reading:
    """One version's result for one question.

    ``margin`` is how much more the best span was believed than the null, from -1 to 1; ``candidate_f1`` is that span's
    F1 whether it was given or not. A result that failed has the lowest margin and no right answer.
    """

    scored: ScoredResult
    margin: float
    candidate_f1: float

    @property
    def answer(self) -> str:
        """The answer in SQuAD's form; empty for none."""
        return normalise(self.scored.prediction)


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """F1 over answerable questions, in percent, where this share of the unanswerable ones gets no answer."""

    no_answer_accuracy: float
    f1: float
    answered: float


@dataclass(frozen=True, slots=True)
class VersionQuality:
    """How right one version is; EM, F1 and accuracy in percent. None where the file has no unanswerable questions."""

    questions: int
    failed: int
    exact: float
    f1: float
    answerable_f1: float
    no_answer_accuracy: float | None
    operating_points: tuple[OperatingPoint, ...]
    ece: float


@dataclass(frozen=True, slots=True)
class Difference:
    """New less old, in points, and the interval that holds the true difference in 95 of 100 cases."""

    by: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both versions, and what differs.

    ``agreement`` is the share of questions with the same answer. ``score_drift`` is the largest distance between the
    two distributions of confidence (Kolmogorov-Smirnov), from 0 to 1.
    """

    new: VersionQuality
    old: VersionQuality
    exact: Difference
    f1: Difference
    agreement: float
    score_drift: float
    mean_score_shift: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What is allowed of a new version: drops in points, a rise of ECE, least agreement, most drift of scores."""

    exact_drop: float = 1.0
    f1_drop: float = 1.0
    operating_drop: float = 2.0
    ece_rise: float = 0.03
    agreement: float = 0.0
    score_drift: float = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """One limit: the figure, the most or least it may be, and whether it holds."""

    name: str
    figure: float
    limit: float
    holds: bool


def read(question: Question, result: Result) -> Reading:
    """Score one result."""
    scored = judge(question, result)
    best = result.answers[0] if result.answers else result.answer
    if result.status is not JobStatus.SUCCEEDED:
        return Reading(scored, -1.0, 0.0)
    text, score = ("", 0.0) if best is None else (best.text, best.score)
    f1 = best_over(token_f1, text, question.references) if question.references else 0.0
    return Reading(scored, score - (result.no_answer_score or 0.0), f1)


def compare(new: Sequence[Reading], old: Sequence[Reading]) -> Comparison:
    """Compare two versions' readings of the same questions, in the same order; at least one."""
    pairs = list(zip(new, old, strict=True))
    contexts = [each.scored.question.context for each in new]
    confidences = [
        [each.scored.confidence for each in side if each.scored.confidence is not None] for side in (new, old)
    ]
    return Comparison(
        new=quality(new),
        old=quality(old),
        exact=difference(contexts, [100 * (n.scored.exact - o.scored.exact) for n, o in pairs]),
        f1=difference(contexts, [100 * (n.scored.f1 - o.scored.f1) for n, o in pairs]),
        agreement=sum(n.answer == o.answer for n, o in pairs) / len(pairs),
        score_drift=largest_gap(*confidences),
        mean_score_shift=_mean(confidences[0]) - _mean(confidences[1]),
    )


def quality(readings: Sequence[Reading]) -> VersionQuality:
    """Return how right one version is."""
    scored = [each.scored for each in readings]
    total = summarise(scored)
    answerable = [each for each in readings if each.scored.question.references]
    unanswerable = [each for each in readings if not each.scored.question.references]
    confident = [(each.confidence, each.exact) for each in scored if each.confidence is not None]
    return VersionQuality(
        questions=total.questions,
        failed=total.failed,
        exact=total.exact,
        f1=total.f1,
        answerable_f1=summarise(each.scored for each in answerable).f1,
        no_answer_accuracy=summarise(each.scored for each in unanswerable).exact if unanswerable else None,
        operating_points=tuple(operating_points(answerable, unanswerable)),
        ece=calibration_error(confident),
    )


def operating_points(answerable: Sequence[Reading], unanswerable: Sequence[Reading]) -> Iterable[OperatingPoint]:
    """Yield F1 at each fixed operating point; nothing where one of the kinds is missing."""
    if not answerable or not unanswerable:
        return
    ranked = sorted(each.margin for each in unanswerable)
    for share in OPERATING_POINTS:
        # Answers are given above the margin that this share of the unanswerable questions stays at or below.
        least = ranked[math.ceil(share * len(ranked)) - 1]
        given = [each for each in answerable if each.margin > least]
        f1 = 100 * sum(each.candidate_f1 for each in given) / len(answerable)
        yield OperatingPoint(share, f1, len(given) / len(answerable))


def difference(groups: Sequence[str], values: Sequence[float]) -> Difference:
    """Return the mean of the values with its interval.

    Questions of one context are not independent, so the standard error is taken over contexts (cluster-robust, as in
    Liang and Zeger, 1986); with a single context the interval is open.
    """
    mean = _mean(values)
    sums: dict[str, float] = {}
    for group, value in zip(groups, values, strict=True):
        sums[group] = sums.get(group, 0.0) + value - mean
    count = len(sums)
    if count < 2:
        return Difference(mean, -math.inf, math.inf)
    error = math.sqrt(count / (count - 1) * sum(each * each for each in sums.values())) / len(values)
    return Difference(mean, mean - Z_95 * error, mean + Z_95 * error)


def largest_gap(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest distance between two empirical distributions; 0 where one has nothing."""
    if not first or not second:
        return 0.0
    one, other = sorted(first), sorted(second)
    gap, at_one, at_other = 0.0, 0, 0
    for value in sorted({*one, *other}):
        while at_one < len(one) and one[at_one] <= value:
            at_one += 1
        while at_other < len(other) and other[at_other] <= value:
            at_other += 1
        gap = max(gap, abs(at_one / len(one) - at_other / len(other)))
    return gap


def check(found: Comparison, limits: Limits) -> list[Check]:
    """Return every limit that the comparison has a figure for, kept or not."""
    checks = [
        _most("EM lost", 0.0 - found.exact.by, limits.exact_drop),
        _most("F1 lost", 0.0 - found.f1.by, limits.f1_drop),
    ]
    for new, old in zip(found.new.operating_points, found.old.operating_points, strict=True):
        name = f"F1 lost where {new.no_answer_accuracy:.0%} of unanswerable questions get no answer"
        checks.append(_most(name, old.f1 - new.f1, limits.operating_drop))
    checks += [
        _most(ECE_RISEN, found.new.ece - found.old.ece, limits.ece_rise),
        Check("agreement", found.agreement, limits.agreement, found.agreement >= limits.agreement),
        _most("score drift", found.score_drift, limits.score_drift),
        _most("more failed", found.new.failed - found.old.failed, 0),
    ]
    return checks


def changed(new: Sequence[Reading], old: Sequence[Reading], most: int) -> list[Mapping[str, object]]:
    """Return questions that became wrong, then those that became right: at most so many, each with both answers."""
    pairs = list(zip(new, old, strict=True))
    signs = {"worse": -1, "better": 1}
    found: list[Mapping[str, object]] = [
        {
            "change": kind,
            "id": n.scored.question.id,
            "question": n.scored.question.question,
            "expected": list(n.scored.question.references),
            "new": n.scored.prediction or None,
            "old": o.scored.prediction or None,
        }
        for kind, sign in signs.items()
        for n, o in pairs
        if sign * (n.scored.f1 - o.scored.f1) > 0
    ]
    return found[:most]


def _most(name: str, figure: float, limit: float) -> Check:
    # Figures are differences of rounded means: what is equal but for the last bit keeps its limit.
    return Check(name, figure, limit, figure <= limit + 1e-9)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
