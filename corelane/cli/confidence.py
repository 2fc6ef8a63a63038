"""How reliable scores are: the expected calibration error, and the effect of asking for a precision. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corelane.cli.squad import ScoredResult

#: Bins of equal width for confidences, as in Guo et al., 2017.
BINS = 10


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
