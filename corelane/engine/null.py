"""The null engine: every query gets the same empty answer, at no cost.

For measuring and testing everything around the engine (``CORELANE_TARGET=null``): the queue plane's own speed, and
chaos runs that are not bound by a model.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from corelane.domain.jobs import JobStatus
from corelane.engine.batching.previews import SoFar
from corelane.engine.runner import Answered, Charge, Work, nothing
from corelane.engine.text.tokenize import Query

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
    """A runner without a model. It answers for any version: there is nothing to load."""

    version = "null@0"

    def __init__(self, version: str = version, batch_s: float = 0.0) -> None:
        """``batch_s`` is the time each step takes, as on a device: the CPU is free meanwhile."""
        self.version = version
        self.name = version.partition("@")[0]
        self._batch_s = batch_s
        self.overlaps = batch_s > 0
        self.work = Work()
        self._admitted: list[Hashable] = []
        self._running: set[Hashable] = set()

    @property
    def summary(self) -> dict[str, object]:
        """What the API shows of it."""
        return {
            "name": self.name,
            "target": "null",
            "dtype": "none",
            "buckets": [],
            "bytes": 0,
            "max_length": 0,
            "no_answer_threshold": 0.0,
            "calibrated": False,
            "verified": True,
            "created_at": "1970-01-01T00:00:00Z",
        }

    def waiting_tokens(self, most_per_item: int) -> int:  # noqa: ARG002  # nothing waits: the next step answers all
        """Nothing waits here."""
        return 0

    def admit(self, queries: Sequence[tuple[Hashable, Query]]) -> None:
        """Take queries in."""
        self._admitted += [key for key, _ in queries]

    def found(self) -> list[Charge]:
        """Nothing is read here: what was estimated stands."""
        return []

    def step(self, meanwhile: Callable[[], None] = nothing) -> list[Answered]:
        """All that was admitted before, with one empty result each."""
        running, self._admitted = self._admitted, []
        if self._batch_s:
            until = time.monotonic() + self._batch_s
            self._running = set(running)
            meanwhile()
            running = [key for key in running if key in self._running]
            time.sleep(max(0.0, until - time.monotonic()))
        answered: list[Answered] = [(key, NULL_RESULT) for key in running]
        self.work.items += len(answered)
        self.work.batches += 1
        return answered

    def look(self) -> list[SoFar]:
        """Nothing takes long here."""
        return []

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget queries."""
        dropped = set(keys)
        self._admitted = [key for key in self._admitted if key not in dropped]
        self._running -= dropped

    def reset(self) -> None:
        """Forget all queries."""
        self._admitted = []

    def close(self) -> None:
        """Nothing to unload."""
