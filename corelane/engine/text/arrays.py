"""Arrays as bytes, for fragments of items that another core reads. Pure.

The numbers that return are bit for bit those that were sent: they travel as they are in memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

Array = NDArray[Any]

#: Types of token ids, of places, of the backends' floats, and of sums.
KINDS = ("<i4", "<i8", "<f4", "<f8")


def join(arrays: Sequence[Array], kind: str) -> Array:
    """Return arrays one after the other; ``kind`` is the type of their numbers."""
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.zeros(0, dtype=kind)


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Encode arrays as bytes: a line with their names, types and lengths, then their memory."""
    flat = {name: np.ascontiguousarray(array).ravel() for name, array in arrays.items()}
    head = {name: (array.dtype.str, len(array)) for name, array in flat.items()}
    return b"".join([orjson.dumps(head), b"\n", *(array.tobytes() for array in flat.values())])


def unpack_arrays(payload: bytes, *names: str) -> dict[str, Array]:
    """Decode arrays of these names; raise ValueError for bytes that no Corelane process wrote."""
    line, _, body = payload.partition(b"\n")
    head = orjson.loads(line)
    if not isinstance(head, dict) or set(head) != set(names):
        raise ValueError("a part has other arrays")
    arrays, at = {}, 0
    for name, (kind, length) in cast("dict[str, tuple[str, int]]", head).items():
        if kind not in KINDS or type(length) is not int or length < 0:
            raise ValueError("a part has an array of another kind")
        arrays[name] = np.frombuffer(body, kind, length, at)
        at += arrays[name].nbytes
    return arrays
