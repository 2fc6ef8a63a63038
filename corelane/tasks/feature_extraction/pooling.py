"""From the vectors of a row's tokens to one vector, as sentence-transformers makes it. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

#: Smallest divisor, so that a row without tokens, or a vector of zeros, gives zeros.
LEAST = 1e-9


def _mean(tokens: Floats, skipped: int) -> Any:  # noqa: ARG001
    return tokens.sum(axis=0) / max(len(tokens), LEAST)


def _mean_sqrt(tokens: Floats, skipped: int) -> Any:  # noqa: ARG001
    return tokens.sum(axis=0) / math.sqrt(max(len(tokens), LEAST))


def _weighted_mean(tokens: Floats, skipped: int) -> Any:
    # A token weighs as much as its place in the row, and what is skipped keeps its places.
    weights = np.arange(skipped + 1, skipped + len(tokens) + 1, dtype=np.float32)
    return weights @ tokens / max(weights.sum(), LEAST)


#: How the vectors of a row's tokens become one, by name; the second argument counts the tokens skipped before these.
POOLINGS: dict[str, Callable[[Floats, int], Any]] = {
    "cls": lambda tokens, _: tokens[0],
    "max": lambda tokens, _: tokens.max(axis=0),
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda tokens, _: tokens[-1],
}


#: The prompts that sentence-transformers knows of any model.
EMPTY_PROMPTS = {"query": "", "document": ""}

#: The file of an artifact with the weights of the layers behind the pooling.
LAYERS_NAME = "layers.npz"

#: The activations of a Dense layer, by the name of torch's class.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Identity": lambda found: found,
    "Tanh": np.tanh,
    "ReLU": lambda found: np.maximum(found, 0),
    "Sigmoid": lambda found: 1 / (1 + np.exp(-found)),
    "SiLU": lambda found: found / (1 + np.exp(-found)),
    "GELU": lambda found: found * (1 + np.vectorize(math.erf)(found / math.sqrt(2))) / 2,
}

#: What LayerNorm adds to a variance.
NORM_EPSILON = 1e-5


def through(vector: Any, layers: Sequence[Mapping[str, Any]], weights: Mapping[str, Any]) -> Floats:
    """Return a pooled vector after the layers behind the pooling."""
    for number, layer in enumerate(layers):
        if layer["kind"] == "Normalize":
            vector = finish(vector, None, normalize=True)
            continue
        weight, bias = weights[f"{number}.weight"], weights.get(f"{number}.bias", 0)
        if layer["kind"] == "Dense":
            vector = ACTIVATIONS[layer["activation"]](weight @ vector + bias)
        else:
            vector = (vector - vector.mean()) / np.sqrt(vector.var() + NORM_EPSILON) * weight + bias
    return np.asarray(vector, dtype=np.float32)


def pool(tokens: Floats, poolings: Sequence[str], skipped: int = 0) -> Floats:
    """Return the vector of a row from those of its visible tokens; several poolings are concatenated.

    The first ``skipped`` tokens are left out, unless no token would remain.
    """
    skipped = skipped if skipped < len(tokens) else 0
    found = [POOLINGS[name](tokens[skipped:], skipped) for name in poolings]
    return np.asarray(found[0] if len(found) == 1 else np.concatenate(found), dtype=np.float32).copy()


def combine(vectors: Sequence[Floats], weights: Sequence[int]) -> Floats:
    """Return the mean of the vectors of a text's windows, weighted by the windows' numbers of tokens."""
    if len(vectors) == 1:
        return vectors[0]
    return np.average(np.stack(vectors), axis=0, weights=np.maximum(weights, 1)).astype(np.float32)


def finish(vector: Floats, dimensions: int | None, normalize: bool) -> Floats:
    """Return the first ``dimensions`` numbers of a vector, then scaled to length 1 if ``normalize`` is set."""
    kept = vector[:dimensions]
    return kept / np.float32(max(float(np.linalg.norm(kept)), LEAST)) if normalize else kept
