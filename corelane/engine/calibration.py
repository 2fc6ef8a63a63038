"""Calibration: what turns a model's margins and shares into probabilities. Its file stands beside the artifact's.

Two logistic curves in a row: the chance that the context answers the question at all, by the best margin, and the
chance that a span is then the right one, by its share among the spans of its own window. Neither looks beyond a span's
window, so scores compare between windows, items and documents, and both grow with the margin, so within a window the
better span has the higher score. The file has a digest of its own and stands in no manifest: it comes and goes without
making another version.
"""

import hashlib
import math
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from corelane.artifacts import Artifact, Record
from corelane.errors import ArtifactRefused, InvalidInput, SetupError

CALIBRATION_NAME = "calibration.json"

#: Fewer questions of a kind (answerable or not, answered right or wrong) tell too little.
LEAST_OF_A_KIND = 30

#: Penalty on a curve's slope, for a feature of unit variance: what one or two questions weigh against it.
RIDGE = 1.0

#: Newton's steps; these problems have one feature and settle within ten.
STEPS = 30


class Curve(Record):
    """A logistic curve: 1 / (1 + exp(-(intercept + slope · x)))."""

    intercept: float
    slope: float = Field(gt=0)

    def log_chance(self, x: float) -> float:
        """Logarithm of the chance at ``x``."""
        z = self.intercept + self.slope * x
        return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


class Calibration(Record):
    """Two curves, whose they are, and what they were fitted on; ``digest`` covers all of it."""

    schema_version: Literal[1] = 1
    version: str = Field(description="The model version's fingerprint.")
    dtype: str = Field(description="The number format of the artifact that was asked.")
    answerable: Curve = Field(description="Chance that the context has an answer, by the best margin.")
    right: Curve = Field(description="Chance that a span is right if there is an answer, by its log share.")
    file: str = Field(description="The file it was fitted on.")
    file_digest: str = Field(description="That file's SHA-256.")
    questions: int
    created_at: str
    digest: str = ""

    def signed(self) -> Self:
        """The same, with its digest."""
        return self.model_copy(update={"digest": self._digest()})

    def is_whole(self) -> bool:
        """Whether the digest is that of the rest."""
        return self.digest == self._digest()

    def log_score(self, margin: float, log_share: float) -> float:
        """Logarithm of a span's score."""
        return self.answerable.log_chance(margin) + self.right.log_chance(log_share)

    def no_answer_score(self, best_margin: float) -> float:
        """The chance that the context holds no answer; 1 where it has no span at all (a margin of -∞)."""
        return 1.0 - math.exp(self.answerable.log_chance(best_margin))

    def _digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"digest"}).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Observation:
    """The best span of one question, and whether it was right; ``answerable`` says that there is an answer."""

    margin: float
    log_share: float
    right: bool
    answerable: bool


def check_kinds(observations: Sequence[Observation]) -> None:
    """Raise InvalidInput if there are too few of a kind to fit curves on."""
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


def fit_curves(observations: Sequence[Observation]) -> tuple[Curve, Curve]:
    """Curves of (answerable, right); raises InvalidInput if one does not rise. Deterministic."""
    known = [each for each in observations if each.answerable]
    margins = np.array([each.margin for each in observations])
    shares = np.array([each.log_share for each in known])
    answerable = np.array([each.answerable for each in observations], dtype=np.float64)
    right = np.array([each.right for each in known], dtype=np.float64)
    return fit_curve(margins, answerable, "margins"), fit_curve(shares, right, "shares")


def fit_curve(x: NDArray[np.float64], outcomes: NDArray[np.float64], what: str) -> Curve:
    """The likeliest logistic curve of outcomes (0 or 1) by ``x``; raises InvalidInput if it does not rise."""
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


def read_calibration(artifact: Artifact) -> Calibration | None:
    """An artifact's calibration, None if it has none; raises ArtifactRefused if it is damaged or another version's."""
    path = artifact.file(CALIBRATION_NAME)
    advice = "make it anew with `corelane calibrate`, or remove it"
    try:
        calibration = Calibration.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ArtifactRefused(f"{path} cannot be read ({type(error).__name__}): {advice}") from None
    if not calibration.is_whole():
        raise ArtifactRefused(f"{path} is damaged: its digest is not that of its content: {advice}")
    if calibration.version != artifact.manifest.version:
        raise ArtifactRefused(f"{path} was fitted for version {calibration.version}: {advice}")
    return calibration


def write_calibration(folder: Path, calibration: Calibration) -> Path:
    """Put a calibration beside an artifact's files in one step, in place of one that is there; raises SetupError."""
    path = folder / CALIBRATION_NAME
    aside = folder / f".{CALIBRATION_NAME}.{secrets.token_hex(4)}"
    try:
        aside.write_text(calibration.signed().model_dump_json(indent=2) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink()
    return path


def carry_calibration(before: Path, after: Path) -> None:
    """Take the calibration of an artifact that is being replaced along; the version, and so the model, is the same."""
    path = before / CALIBRATION_NAME
    if path.is_file():
        (after / CALIBRATION_NAME).write_bytes(path.read_bytes())
