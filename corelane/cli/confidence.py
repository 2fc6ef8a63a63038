"""How far scores can be believed: the expected calibration error, and what asking for a precision would give. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corelane.cli.squad import Outcome

#: Bins of equal width that confidences are sorted into, as in Guo et al., 2017.
BINS = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """What a ``min_precision`` gives on some questions: the share that is answered, and how much of it is right."""

    min_precision: float
    answered: int
    coverage: float
    precision: float | None


def calibration_error(pairs: Sequence[tuple[float, float]], bins: int = BINS) -> float:
    """ECE of (confidence, 1 if right else 0): the mean distance of the two in each bin; 0 for nothing."""
    gaps = [0.0] * bins
    for confidence, right in pairs:
        gaps[min(int(confidence * bins), bins - 1)] += confidence - right
    return sum(abs(gap) for gap in gaps) / max(len(pairs), 1)


def precision(outcomes: Iterable[Outcome]) -> float | None:
    """The share of given answers that are exactly right; None where none was given."""
    given = [each.exact for each in outcomes if each.answered]
    return sum(given) / len(given) if given else None


def ask_precisions(pairs: Sequence[tuple[float, bool]], asked: Iterable[float]) -> list[Asked]:
    """What each ``min_precision`` would give on questions whose best answers have these scores and are right or not."""
    found = []
    for least in asked:
        given = [right for score, right in pairs if score >= least]
        share = sum(given) / len(given) if given else None
        found.append(Asked(least, len(given), len(given) / max(len(pairs), 1), share))
    return found
