"""Aliases: movable names, each for one version or for several by weight. Pure.

The version is chosen by weighted rendezvous hashing. A key gets the same version on every API process, and a change of
weights moves as few keys as possible.
"""

import hashlib
import math
import re
from collections.abc import Mapping

#: The alias of the model in the settings.
DEFAULT_ALIAS = "default"

ALIAS_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,99}$")

Weights = Mapping[str, float]


def choose(weights: Weights, key: str) -> str:
    """Return the version for a key; over many keys each gets its share. At least one weight must be above zero."""
    return min((version for version in weights if weights[version] > 0), key=lambda v: _draw(v, key) / weights[v])


def encode_weights(weights: Weights) -> str:
    """Return the stored text: only the version if there is one, else each version followed by its weight."""
    kept = {version: weight for version, weight in weights.items() if weight > 0}
    return next(iter(kept)) if len(kept) == 1 else " ".join(f"{version} {weight:g}" for version, weight in kept.items())


def decode_weights(text: str) -> dict[str, float]:
    """Parse stored weights."""
    parts = text.split()
    if len(parts) == 1:
        return {text: 1.0}
    return {version: float(weight) for version, weight in zip(parts[::2], parts[1::2], strict=True)}


def _draw(version: str, key: str) -> float:
    """Return an exponentially distributed number that depends only on version and key."""
    digest = hashlib.sha256(f"{version} {key}".encode()).digest()
    return -math.log((int.from_bytes(digest[:8]) + 0.5) / 2**64)
