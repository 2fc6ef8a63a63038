"""Measure a calibration on questions that it was not fitted on (cross-validation).

Passages are distributed over five folds, each passage with all of its questions. A fold is scored by curves and a
threshold that were fitted on the other four. A calibration depends on the mix of questions, so all folds have the same
mix: the share of questions with an answer, and the share of right answers. Folds cut from the file in its order would
have different mixes if its articles differ.
"""

import math
from collections.abc import Sequence

from corelane.domain.jobs import JobStatus
from corelane.tasks.question_answering.engine.spans import Candidate
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.tune.evaluation import rightness
from corelane.tasks.question_answering.tune.fitting import Fit, Observation, fit
from corelane.tasks.question_answering.wire import Answer, AnswerResult

#: Number of folds; each is scored by a calibration that was fitted on the others.
FOLDS = 5

#: A question, and the best span in its context before calibration; None if there is none.
Seen = tuple[SquadQuestion, Candidate | None]


def observations(seen: Sequence[Seen]) -> list[Observation]:
    """Return the observations to fit on; questions without a span are left out."""
    return [
        Observation(
            best.margin,
            best.log_share,
            *rightness(asked.context[best.start : best.end], asked.gold),
            answerable=bool(asked.gold),
        )
        for asked, best in seen
        if best is not None
    ]


def held_out(seen: Sequence[Seen]) -> list[AnswerResult]:
    """Return each question's result by a fit without its passage; raises InvalidInput if the others are too few."""
    results: dict[int, AnswerResult] = {}
    for fold in deal(seen):
        held = set(fold)
        fitted = fit(observations([each for place, each in enumerate(seen) if place not in held]))
        results |= {place: result_of(place, *seen[place], fitted) for place in fold}
    return [results[place] for place in range(len(seen))]


def deal(seen: Sequence[Seen]) -> list[list[int]]:
    """Return the places of the questions in each fold. A passage's questions stay together; folds have equal mixes."""
    passages: dict[str, list[int]] = {}
    for place, (question, _) in enumerate(seen):
        passages.setdefault(question.context, []).append(place)
    ranked = sorted(passages.values(), key=lambda places: _mix([seen[place] for place in places]))
    return [[place for places in ranked[hand::FOLDS] for place in places] for hand in range(min(FOLDS, len(ranked)))]


def _mix(seen: Sequence[Seen]) -> tuple[float, float]:
    """Return two shares: of questions that have an answer, and of questions that were answered right."""
    right = sum(each.right for each in observations(seen))
    return sum(bool(question.gold) for question, _ in seen) / len(seen), right / len(seen)


def result_of(place: int, question: SquadQuestion, best: Candidate | None, fitted: Fit) -> AnswerResult:
    """Return the result of a question with this calibration."""
    if best is None:
        return AnswerResult(index=place, status=JobStatus.SUCCEEDED, no_answer_score=1.0)
    known = fitted.answerable.log_chance(best.margin)
    score = math.exp(known + fitted.right.log_chance(best.log_share))
    answer = Answer(text=question.context[best.start : best.end], start=best.start, end=best.end, score=score)
    return AnswerResult(
        index=place,
        status=JobStatus.SUCCEEDED,
        answer=answer if -best.margin <= fitted.no_answer_threshold else None,
        answers=[answer],
        no_answer_score=1 - math.exp(known),
    )
