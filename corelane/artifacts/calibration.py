"""Calibration: what turns a model's margins and shares into probabilities. Its file stands beside the artifact's.

Two logistic curves in a row: the chance that the context answers the question at all, by the best margin, and the
chance that a span is then the right one, by its share among the spans of its own window. Neither looks beyond a span's
window, so scores compare between windows, items and documents, and both grow with the margin, so within a window the
better span has the higher score. Beside them stands the threshold at which null is answered. The file has a digest of
its own and stands in no manifest: it comes and goes without making another version.
"""

import hashlib
import math
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from corelane.artifacts.template import Record
from corelane.errors import ArtifactRefused, SetupError

CALIBRATION_NAME = "calibration.json"

#: The calibration that comes with a model, in its folder beside the weights. The version does not depend on it.
SHIPPED_NAME = "corelane-calibration.json"

#: What to do about a file that cannot be used.
ADVICE = "calibrate the model again, or remove the file"


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
    no_answer_threshold: float | None = Field(
        None, description="Null is answered where its logits lead by more; the model's own if absent, as it once was."
    )
    file: str = Field(description="The file it was fitted on.")
    file_digest: str = Field(description="That file's SHA-256.")
    questions: int
    created_at: str
    digest: str = ""

    def signed(self) -> Self:
        """Return a copy that carries its digest."""
        return self.model_copy(update={"digest": self._digest()})

    def is_whole(self) -> bool:
        """Return whether the digest is that of the rest."""
        return self.digest == self._digest()

    def log_score(self, margin: float, log_share: float) -> float:
        """Logarithm of a span's score."""
        return self.answerable.log_chance(margin) + self.right.log_chance(log_share)

    def no_answer_score(self, best_margin: float) -> float:
        """Return the chance that the context holds no answer; 1 where it has no span (a margin of -∞)."""
        return 1.0 - math.exp(self.answerable.log_chance(best_margin))

    @property
    def highest_precision(self) -> float:
        """The highest score that a span can have, in steps of 0.001: no higher ``min_precision`` gives an answer."""
        return math.floor(1000 * math.exp(self.right.log_chance(0.0))) / 1000

    def _digest(self) -> str:
        # Without what is absent: files from before it was known keep their digest.
        return hashlib.sha256(self.model_dump_json(exclude={"digest"}, exclude_none=True).encode()).hexdigest()


def read_calibration(folder: Path, version: str) -> Calibration | None:
    """Return the calibration beside an artifact's files, or None.

    Raises ArtifactRefused if it is damaged or belongs to another version.
    """
    path = folder / CALIBRATION_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactRefused(f"{path} cannot be read ({type(error).__name__}): {ADVICE}") from None
    return parse_calibration(content, version, path)


def parse_calibration(content: bytes, version: str, path: Path | str) -> Calibration:
    """Parse a calibration file; raise ArtifactRefused if it is damaged or not this version's."""
    try:
        calibration = Calibration.model_validate_json(content)
    except ValidationError as error:
        raise ArtifactRefused(f"{path} cannot be read ({type(error).__name__}): {ADVICE}") from None
    if not calibration.is_whole():
        raise ArtifactRefused(f"{path} is damaged: its digest is not that of its content: {ADVICE}")
    if calibration.version != version:
        raise ArtifactRefused(f"{path} was fitted for version {calibration.version}: {ADVICE}")
    return calibration


def write_calibration(folder: Path, calibration: Calibration) -> Path:
    """Put a calibration beside an artifact's files in one step, in place of one that is there; raises SetupError."""
    path = folder / CALIBRATION_NAME
    aside = folder / f".{CALIBRATION_NAME}.{secrets.token_hex(4)}"
    try:
        aside.write_text(calibration.signed().model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink()
    return path


def carry_calibration(before: Path, after: Path) -> None:
    """Copy a calibration file, if there is one, to an artifact or a model's folder of the same version."""
    if before.is_file():
        after.write_bytes(before.read_bytes())
