"""Fit a calibration (``corelane.artifacts.calibration``) on a model's answers to a file, and measure it.

A calibration is measured on questions that it was not fitted on (cross-validation). Passages are distributed over five
folds, each passage with all of its questions. A fold is scored by curves and a threshold that were fitted on the other
four. A calibration depends on the mix of questions, so all folds have the same mix: the share of questions with an
answer, and the share of right answers. Folds cut from the file in its order would have different mixes if its articles
differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from compile.model.timing import one_thread
from corelane.artifacts.calibration import Curve
from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import JobStatus
from corelane.engine import task
from corelane.engine.runner import Runner, ServedModel, open_backend
from corelane.errors import InvalidInput
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.spans import Candidate
from corelane.tasks.question_answering.engine.task import (
    QuestionAnsweringTask,
    QuestionQuery,
    ReadWindow,
    TokenizedQuery,
    best_candidates,
)
from corelane.tasks.question_answering.quality.evaluation import rightness
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.wire import Answer, AnswerResult

#: Questions that are asked between two steps of the progress bar.
STEP = 64

#: Fewer questions of a kind (answerable or not, answered right or wrong) are not enough.
LEAST_OF_A_KIND = 30

#: Penalty on a curve's slope, for a feature of unit variance: it weighs as much as one or two questions.
RIDGE = 1.0

#: Number of Newton steps; these problems have one feature and converge within ten.
STEPS = 30

#: Number of folds; each is scored by a calibration that was fitted on the others.
FOLDS = 5

#: A question, and the best span in its context before calibration; None if there is none.
Seen = tuple[SquadQuestion, Candidate | None]


@dataclass(frozen=True, slots=True)
class Observation:
    """The best span of one question, whether it was right, and its F1; ``answerable`` says that there is an answer."""

    margin: float
    log_share: float
    right: bool
    f1: float
    answerable: bool


class Fit(NamedTuple):
    """The fitted fields of a calibration, under the same names."""

    answerable: Curve
    right: Curve
    no_answer_threshold: float


class CandidateTask(QuestionAnsweringTask):
    """Question answering whose result is the best candidate by its margin."""

    def compose(self, item: TokenizedQuery, decoded: Sequence[ReadWindow]) -> task.Result:
        """Return the best candidate instead of a result."""
        best = best_candidates(item.query, item.context, decoded, None)
        return {"best": best[0] if best else None}


def observe(artifact: Artifact, questions: Sequence[SquadQuestion], settings: Settings | None = None) -> list[Seen]:
    """Ask an artifact in this process, on one thread, without its calibration; return the best span of each question.

    It is None if there is no span or the question failed.
    """
    found: list[task.Result] = []
    with one_thread():
        backend = open_backend(artifact.manifest.target, settings)
        candidates = CandidateTask.open(artifact, task.UNLIMITED, None)
        model = backend.load(artifact)
        served = ServedModel.of(artifact, None, rows_share_kernels=backend.rows_share_kernels)
        run, unload = partial(backend.run, model), partial(backend.unload, model)
        runner = Runner(candidates, served, run, overlaps=backend.overlaps, unload=unload)
        starts = range(0, len(questions), STEP)
        for at in track(starts, "asking", console=Console(stderr=True), transient=True):
            part = questions[at : at + STEP]
            found += runner.results_of([QuestionQuery(each.question, each.context) for each in part])
        runner.close()
    return [(question, result.get("best")) for question, result in zip(questions, found, strict=True)]


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


def check_kinds(observations: Sequence[Observation]) -> None:
    """Raise InvalidInput if there are too few questions of a kind to fit curves."""
    known = [each for each in observations if each.answerable]
    right = sum(each.right for each in known)
    kinds = {
        "answerable questions": len(known),
        "unanswerable questions": len(observations) - len(known),
        "right answers": right,
        "wrong answers to answerable questions": len(known) - right,
    }
    for kind, count in kinds.items():
        if count < LEAST_OF_A_KIND:
            raise InvalidInput(
                f"the file gave {count} {kind}, and at least {LEAST_OF_A_KIND} are needed: take a larger one in "
                "SQuAD's v2.0 layout, where some questions are unanswerable"
            )


def fit(observations: Sequence[Observation]) -> Fit:
    """Fit curves and threshold; raises InvalidInput if a curve does not rise. Deterministic."""
    known = [each for each in observations if each.answerable]
    margins = np.array([each.margin for each in observations])
    shares = np.array([each.log_share for each in known])
    answerable = np.array([each.answerable for each in observations], dtype=np.float64)
    right = np.array([each.right for each in known], dtype=np.float64)
    curves = fit_curve(margins, answerable, "margins"), fit_curve(shares, right, "shares")
    return Fit(*curves, choose_threshold(observations))


def choose_threshold(observations: Sequence[Observation]) -> float:
    """Return the threshold of the best F1 over all questions, as SQuAD v2.0's own evaluation chooses it.

    A question gets no answer if the null logits lead by more than the threshold. Of equally good thresholds, the one
    with the most answers is chosen. It lies midway between two questions.
    """
    ranked = sorted(observations, key=lambda each: -each.margin)
    gains = np.cumsum([0.0] + [each.f1 if each.answerable else -1.0 for each in ranked])
    given = int(np.flatnonzero(gains == gains.max())[-1])
    if given == 0:
        return -max((each.margin for each in ranked), default=0.0) - 1.0
    around = [each.margin for each in ranked[given - 1 : given + 1]]
    return -sum(around) / len(around)


def fit_curve(x: NDArray[np.float64], outcomes: NDArray[np.float64], what: str) -> Curve:
    """Fit the most likely logistic curve of outcomes (0 or 1) by ``x``; raises InvalidInput if it does not rise."""
    if not 0 < outcomes.sum() < len(outcomes):
        raise InvalidInput(f"all outcomes are equal: no curve of {what} fits them")
    mean, spread = float(x.mean()), float(x.std()) or 1.0
    design = np.column_stack([np.ones_like(x), (x - mean) / spread])
    penalty = np.array([0.0, RIDGE])
    weights = np.zeros(2)
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-design @ weights))
        gradient = design.T @ (chances - outcomes) + penalty * weights
        curvature = (design * (chances * (1 - chances))[:, None]).T @ design + np.diag(penalty)
        weights -= np.linalg.solve(curvature, gradient)
    if not (np.isfinite(weights).all() and weights[1] > 0):
        raise InvalidInput(f"this model's {what} do not tell right from wrong on this file; it cannot be calibrated")
    return Curve(intercept=float(weights[0] - weights[1] * mean / spread), slope=float(weights[1] / spread))


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
