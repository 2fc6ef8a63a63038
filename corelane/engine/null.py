"""The null engine: every query gets the same empty answer, at no cost.

For measuring and testing everything around the engine (``CORELANE_TARGET=null``): the queue plane's own speed, and
chaos runs that are not bound by a model.
"""

from collections.abc import Sequence
from typing import Any

from corelane.engine.reading import Query
from corelane.engine.runner import Work
from corelane.jobs import JobStatus

#: What every item is answered with; shared, never changed.
NULL_RESULT: dict[str, Any] = {
    "status": str(JobStatus.SUCCEEDED),
    "answer": None,
    "answers": [],
    "no_answer_score": 1.0,
    "windows": 0,
    "error": None,
}


class NullRunner:
    """A runner without a model."""

    name = "null"
    version = "null@0"

    def __init__(self) -> None:
        self.work = Work()

    @property
    def summary(self) -> dict[str, object]:
        """What the API shows of it."""
        return {
            "name": self.name,
            "target": "null",
            "dtype": "none",
            "buckets": [],
            "max_length": 0,
            "no_answer_threshold": 0.0,
            "created_at": "1970-01-01T00:00:00Z",
        }

    def answer(self, queries: Sequence[Query]) -> list[dict[str, Any]]:
        """One empty result per query."""
        self.work.items += len(queries)
        self.work.batches += 1
        return [NULL_RESULT] * len(queries)

    def close(self) -> None:
        """Nothing to unload."""
