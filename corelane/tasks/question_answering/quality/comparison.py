"""Compare two versions on the same questions: where they differ, and whether the limits allow it. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from corelane.tasks.question_answering.quality.evaluation import Metrics, Scored, measure, score_all
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.wire import AnswerResult

#: F1 at an operating point is over the answerable questions that are answered there: fewer, so it varies more.
POINT_FACTOR = 2

#: Half the width of the interval that holds 95 % of a normal distribution, in standard deviations.
Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """New less old, in points, and the interval that holds the true difference in 95 of 100 cases."""

    by: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """The figures of both versions, and their differences. ``agreement`` is the share of equal answers."""

    new: Metrics
    old: Metrics
    exact: ScoreDifference
    f1: ScoreDifference
    agreement: float


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The limits for a new version. Each field is an option of `corelane eval`."""

    max_drop: Annotated[
        float, typer.Option(help="With --against: points of EM and F1 it may lose; twice that at an operating point.")
    ] = 1.0
    max_ece_rise: Annotated[
        float, typer.Option(help="With --against: rise of the calibration error that is allowed.")
    ] = 0.03
    min_agreement: Annotated[
        float, typer.Option(min=0, max=1, help="With --against: least share of questions with the same answer.")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """One limit: the figure, the largest or smallest allowed value, and whether it holds."""

    name: str
    figure: float
    limit: float
    holds: bool


@dataclass(frozen=True, slots=True)
class GateReport:
    """Two named versions compared: the figures, every limit, and the questions that became wrong or right."""

    new: str
    old: str
    comparison: VersionComparison
    checks: Sequence[LimitCheck]
    changed: Sequence[Mapping[str, object]]

    @property
    def failing(self) -> list[str]:
        """The limits that were exceeded, each with its figure."""
        return [f"{each.name} {each.figure:.3g}, limit {each.limit:.3g}" for each in self.checks if not each.holds]

    def as_data(self) -> dict[str, object]:
        """Return the report as plain data."""
        return asdict(self) | {"passes": not self.failing}


def compare_versions(
    questions: Sequence[SquadQuestion],
    new: tuple[str, Sequence[AnswerResult]],
    old: tuple[str, Sequence[AnswerResult]],
    limits: GateLimits,
) -> GateReport:
    """Compare the results of two named versions with each other, and the difference with the limits."""
    sides = [score_all(questions, results) for _, results in (new, old)]
    found = compare(*sides)
    return GateReport(new[0], old[0], found, check(found, limits), changed(*sides))


def compare(new: Sequence[Scored], old: Sequence[Scored]) -> VersionComparison:
    """Compare the scored results of two versions, of the same questions in the same order; at least one."""
    pairs = list(zip(new, old, strict=True))
    contexts = [each.question.context for each in new]
    return VersionComparison(
        new=measure(new),
        old=measure(old),
        exact=difference(contexts, [100 * (n.exact - o.exact) for n, o in pairs]),
        f1=difference(contexts, [100 * (n.f1 - o.f1) for n, o in pairs]),
        agreement=sum(n.answer == o.answer for n, o in pairs) / len(pairs),
    )


def difference(groups: Sequence[str], values: Sequence[float]) -> ScoreDifference:
    """Return the mean of the values with its interval.

    Questions of one context are not independent, so the standard error is taken over contexts (cluster-robust, as in
    Liang and Zeger, 1986); with a single context the interval is open.
    """
    mean = sum(values) / max(len(values), 1)
    sums: dict[str, float] = {}
    for group, value in zip(groups, values, strict=True):
        sums[group] = sums.get(group, 0.0) + value - mean
    count = len(sums)
    if count < 2:
        return ScoreDifference(mean, -math.inf, math.inf)
    error = math.sqrt(count / (count - 1) * sum(each * each for each in sums.values())) / len(values)
    return ScoreDifference(mean, mean - Z_95 * error, mean + Z_95 * error)


def check(found: VersionComparison, limits: GateLimits) -> list[LimitCheck]:
    """Return every limit for which the comparison has a figure, whether it holds or not."""
    checks = [
        _most("EM lost", 0.0 - found.exact.by, limits.max_drop),
        _most("F1 lost", 0.0 - found.f1.by, limits.max_drop),
    ]
    for new, old in zip(found.new.operating_points, found.old.operating_points, strict=True):
        name = f"F1 lost where {new.no_answer_accuracy:.0%} of unanswerable questions get no answer"
        checks.append(_most(name, old.f1 - new.f1, POINT_FACTOR * limits.max_drop))
    checks += [
        _most("ECE risen", found.new.ece - found.old.ece, limits.max_ece_rise),
        LimitCheck("agreement", found.agreement, limits.min_agreement, found.agreement >= limits.min_agreement),
        _most("more failed", found.new.failed - found.old.failed, 0),
    ]
    return checks


def changed(new: Sequence[Scored], old: Sequence[Scored]) -> list[Mapping[str, object]]:
    """Return the questions that became worse, then those that became better, each with both answers."""
    pairs = list(zip(new, old, strict=True))
    signs = {"worse": -1, "better": 1}
    return [
        {
            "change": kind,
            "id": n.question.id,
            "question": n.question.question,
            "expected": list(n.question.gold),
            "new": n.prediction or None,
            "old": o.prediction or None,
        }
        for kind, sign in signs.items()
        for n, o in pairs
        if sign * (n.f1 - o.f1) > 0
    ]


def _most(name: str, figure: float, limit: float) -> LimitCheck:
    # Figures are differences of rounded means, so a difference in the last bit does not count.
    return LimitCheck(name, figure, limit, figure <= limit + 1e-9)
