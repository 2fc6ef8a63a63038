"""Results as they are stored: one slice's as a JSON array; with vectors a newline, this array, a newline, the numbers.

An engine gives a vector as a memoryview of little-endian 32-bit floats. Its place in the JSON holds its shape. What a
caller gets, numbers or base64, is made when the results are read: a number takes four bytes until then.
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson

from corelane.domain.jobs import TaskOptions

#: The field that a vector leaves in the JSON; it has the vector's shape.
FLOATS = "float32"

#: A number of a vector is rounded to this share of the vector's largest one: about what a 32-bit float tells apart.
SIGNIFICANT_DIGITS = 7


def encode_results(results: Sequence[dict[str, Any]]) -> bytes:
    """Return a slice's results in stored form; raise TypeError for a value that cannot be stored."""
    numbers: list[bytes] = []

    def put(value: Any) -> dict[str, Any]:
        if not isinstance(value, memoryview):
            raise TypeError(type(value))
        numbers.append(value.tobytes())
        return {FLOATS: value.shape}

    line = orjson.dumps(results, default=put)
    return b"".join((b"\n", line, b"\n", *numbers)) if numbers else line


def decode_results(blob: bytes, options: TaskOptions | None) -> list[dict[str, Any]]:
    """Return a slice's results as callers of these options get them; without options vectors stay shapes."""
    if blob.startswith(b"["):
        plain: list[dict[str, Any]] = orjson.loads(blob)
        return plain
    _, line, numbers = blob.split(b"\n", 2)
    results: list[dict[str, Any]] = orjson.loads(line)
    if options is not None:
        _put_vectors(results, memoryview(numbers), getattr(options, "encoding", ""))
    return results


def _put_vectors(results: Sequence[dict[str, Any]], numbers: memoryview, encoding: str) -> None:
    at = 0
    for result in results:
        for name, value in result.items():
            if isinstance(value, dict) and FLOATS in value:
                end = at + 4 * math.prod(value[FLOATS])
                result[name] = (
                    b64encode(numbers[at:end]).decode() if encoding == "base64" else _rounded(numbers[at:end])
                )
                at = end


def _rounded(numbers: memoryview) -> list[float]:
    import numpy as np  # here, so that a process that shows no numbers does without

    wide = np.frombuffer(numbers, "<f4").astype(np.float64)
    largest = float(np.abs(wide).max(initial=0.0))
    digits = SIGNIFICANT_DIGITS - math.ceil(math.log10(largest)) if 0 < largest < math.inf else 0
    rounded: list[float] = np.round(wide, digits).tolist()
    return rounded
