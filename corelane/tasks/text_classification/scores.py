"""From logits to scores, as Transformers' pipelines make them. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corelane.tasks.text_classification.wire import Function

Doubles = NDArray[np.float64]

#: Decimals of a score in a result.
SCORE_DIGITS = 6


def scores_of(logits: NDArray[Any], function: Function) -> Doubles:
    """Return the scores of labels, along the last axis."""
    wide = logits.astype(np.float64)
    if function == "none":
        return wide
    if function == "sigmoid":
        # Without an overflow, whatever the logit.
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * wide))
    shifted = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def combine(scores: Doubles, long: str) -> Doubles:
    """Return the scores of a text from those of its windows: their mean, or the greatest of each label."""
    return np.asarray(scores.max(axis=0) if long == "max" else scores.mean(axis=0))


def best_first(labels: Sequence[str], scores: Doubles, top_k: int | None) -> list[dict[str, Any]]:
    """Return labels with their scores, the best first; of equal scores the earlier label."""
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [{"label": labels[at], "score": round(float(scores[at]), SCORE_DIGITS)} for at in order]
