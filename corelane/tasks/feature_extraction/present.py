"""What pages show of vectors: how long they are, and their first numbers."""

import math
import sys
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from corelane.domain.jobs import Result
from corelane.tasks.presenting import Presenter

#: Numbers that a page shows of a vector alone, and of each vector in a list.
FIRST, LISTED = 16, 5


def numbers_of(embedding: Sequence[float] | str | None) -> Sequence[float]:
    """Return the numbers of a vector in either encoding."""
    if not isinstance(embedding, str):
        return embedding or ()
    numbers = array("f")
    numbers.frombytes(b64decode(embedding))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class EmbeddingPresenter(Presenter):
    """Shows a vector by its first numbers and its length."""

    about = "One text. The model gives a vector, and texts of like meaning have vectors that lie close together."
    empty = "no embedding"

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the first numbers of a vector, and how many there are."""
        numbers = numbers_of(result.embedding)
        first = ", ".join(f"{number:.3f}" for number in numbers[:LISTED])
        return (f"{first}{', …' if len(numbers) > LISTED else ''} ({len(numbers):,} numbers)" if numbers else ""), None

    def shown(self, item: Any, result: Any) -> Mapping[str, Any]:  # noqa: ARG002  # the vector alone says it
        """Return the first numbers, all as text to copy, how many there are, and the vector's length."""
        numbers = numbers_of(result.embedding if isinstance(result, Result) else None)
        first, widest = list(numbers[:FIRST]), max((abs(each) for each in numbers), default=0.0)
        told = {"all": f"[{', '.join(f'{each:.9g}' for each in numbers)}]", "count": len(numbers)}
        return {"first": first, "widest": widest, "length": math.hypot(*numbers), **told}
