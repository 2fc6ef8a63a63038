"""What pages show of vectors: how long they are, and their first numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from corelane.domain.jobs import Result
from corelane.tasks.feature_extraction.wire import numbers_of
from corelane.tasks.presenting import Presenter

#: Numbers that a page shows of a vector alone, and of each vector in a list.
FIRST, LISTED = 16, 5


def _numbers(embedding: Sequence[float] | str | None) -> Sequence[float]:
    return numbers_of(embedding) if isinstance(embedding, str) else embedding or ()


class EmbeddingPresenter(Presenter):
    """Shows a vector by its first numbers and its length."""

    about = "One text. The model gives a vector, and texts of like meaning have vectors that lie close together."
    empty = "no embedding"

    def line(self, result: Any) -> tuple[str, float | None]:
        """Return the first numbers of a vector, and how many there are."""
        numbers = _numbers(result.embedding)
        first = ", ".join(f"{number:.3f}" for number in numbers[:LISTED])
        return (f"{first}{', …' if len(numbers) > LISTED else ''} ({len(numbers):,} numbers)" if numbers else ""), None

    def shown(self, item: Any, result: Any) -> Mapping[str, Any]:  # noqa: ARG002  # the vector alone says it
        """Return the first numbers, all as text to copy, how many there are, and the vector's length."""
        numbers = _numbers(result.embedding if isinstance(result, Result) else None)
        first, widest = list(numbers[:FIRST]), max((abs(each) for each in numbers), default=0.0)
        told = {"all": f"[{', '.join(f'{each:.9g}' for each in numbers)}]", "count": len(numbers)}
        return {"first": first, "widest": widest, "length": math.hypot(*numbers), **told}
