"""Fit the two curves of a calibration (``corelane.artifacts.calibration``) on a model's answers to a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corelane.artifacts.calibration import Curve
from corelane.errors import InvalidInput

#: Fewer questions of a kind (answerable or not, answered right or wrong) are not enough.
LEAST_OF_A_KIND = 30

#: Penalty on a curve's slope, for a feature of unit variance: it weighs as much as one or two questions.
RIDGE = 1.0

#: Number of Newton steps; these problems have one feature and converge within ten.
STEPS = 30


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
