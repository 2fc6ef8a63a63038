"""Calibration turns a model's margins and shares into probabilities. Its file is in the artifact's folder.

The file has two logistic curves. The first gives the chance that the context answers the question at all, from the
best margin. The second gives the chance that a span is then the right one, from its share among the spans of its own
window. Neither looks beyond a span's window, so scores are comparable between windows, items and documents. Both grow
with the margin, so within a window the better span has the higher score. The file also has the threshold at which null
is answered. It has its own digest and is in no manifest, so adding or removing it does not make another version.
"""

import hashlib
import math
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corelane.errors import ArtifactRefused, SetupError

CALIBRATION_NAME = "calibration.json"

#: The calibration that comes with a model, in the model's folder. The version does not depend on it.
SHIPPED_NAME = "corelane-calibration.json"

#: Advice about a file that cannot be used.
ADVICE = "calibrate the model again, or remove the file"


class FrozenRecord(BaseModel):
    """A frozen part of a manifest or a calibration."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Curve(FrozenRecord):
    """A logistic curve: 1 / (1 + exp(-(intercept + slope · x)))."""

    intercept: float
    slope: float = Field(gt=0)

    def log_chance(self, x: float) -> float:
        """Return the logarithm of the chance at ``x``."""
        z = self.intercept + self.slope * x
        return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


class Calibration(FrozenRecord):
    """Two curves, the version they belong to, and the data they were fitted on; ``digest`` covers all of it."""

    schema_version: Literal[1] = 1
    version: str = Field(description="The model version's fingerprint.")
    dtype: str = Field(description="The number format of the artifact that was asked.")
    answerable: Curve = Field(description="Chance that the context has an answer, by the best margin.")
    right: Curve = Field(description="Chance that a span is right if there is an answer, by its log share.")
    no_answer_threshold: float | None = Field(
        None, description="Null is answered where its logits lead by more; the model's own if absent."
    )
    file: str = Field(description="The file it was fitted on.")
    file_digest: str = Field(description="That file's SHA-256.")
    questions: int
    created_at: str
    digest: str = ""

    @property
    def described(self) -> str:
        """Return what it was fitted on, in words."""
        return f"calibrated on {self.questions:,} questions of {self.file}"

    def signed(self) -> Self:
        """Return a copy that carries its digest."""
        return self.model_copy(update={"digest": self._digest()})

    def is_whole(self) -> bool:
        """Return whether the digest matches the rest of the content."""
        return self.digest == self._digest()

    def log_score(self, margin: float, log_share: float) -> float:
        """Return the logarithm of a span's score."""
        return self.answerable.log_chance(margin) + self.right.log_chance(log_share)

    def no_answer_score(self, best_margin: float) -> float:
        """Return the chance that the context holds no answer; 1 if there is no span (a margin of -∞)."""
        return 1.0 - math.exp(self.answerable.log_chance(best_margin))

    @property
    def highest_precision(self) -> float:
        """Return the highest score of a span, in steps of 0.001. A higher ``min_precision`` gives no answer."""
        return math.floor(1000 * math.exp(self.right.log_chance(0.0))) / 1000

    def _digest(self) -> str:
        # Absent fields are left out, as they are in the file.
        return hashlib.sha256(self.model_dump_json(exclude={"digest"}, exclude_none=True).encode()).hexdigest()


def read_calibration(folder: Path, version: str) -> Calibration | None:
    """Return the calibration in an artifact's folder, or None.

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
    """Write a calibration into an artifact's folder in one step, replacing an existing one; raises SetupError."""
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
    """Copy a calibration file, if it exists, to an artifact or a model's folder of the same version."""
    if before.is_file():
        after.write_bytes(before.read_bytes())
