"""The null engine: every query gets the same empty result, at no cost.

It serves to measure and test everything around the engine (``CORELANE_TARGET=null``): the speed of the queue itself,
and chaos runs that a model would slow down. It is a task like any other, for the same runner.
"""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from corelane.domain.jobs import DEFAULT_TASK, JobStatus
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import Runner, ServedModel
from corelane.engine.task import Query, Ready, Result, RunnerWork, TaskEngine, Window
from corelane.tasks.registry import TASKS, task_named


@cache
def null_result(task: str) -> Result:
    """Return the result of every item of a task; it is shared, so do not change it."""
    return {"status": str(JobStatus.SUCCEEDED), **task_named(task).nothing, "windows": 0, "error": None}


#: The API's summary of any version, without its name.
SUMMARY: dict[str, object] = {
    "target": "null",
    "dtype": "none",
    "buckets": [],
    "bytes": 0,
    "max_length": 0,
    "calibrated": False,
    "highest_precision": None,
    "verified": True,
    "created_at": "1970-01-01T00:00:00Z",
}


class AnyShape(Bucket):
    """A bucket without bounds."""

    __slots__ = ()

    def __str__(self) -> str:
        return "any"


#: A bucket that holds all waiting items, however long they are.
EVERYTHING = AnyShape(length=1 << 62, rows=1 << 30)

NO_LOGITS = tuple(np.zeros((2, 0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class NullItem:
    """A query as one window, whose length is the estimate of the query's tokens."""

    query: Query
    windows: Sequence[Window]


class NullTask(TaskEngine[NullItem]):
    """Gives results at once, or with the next batch if batches take time."""

    def __init__(self, *, needs_batches: bool) -> None:
        self.work = RunnerWork()
        self._needs_batches = needs_batches

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[NullItem]]:
        """Return the result, or an item that waits for a batch."""
        if not self._needs_batches:
            return [(key, null_result(query.options.task)) for key, query in queries]
        lengths = [
            task_named(query.options.task).tokens(query.beside, query.text, query.options) for _, query in queries
        ]
        return [
            (key, NullItem(query, [Window(0, length, length)]))
            for (key, query), length in zip(queries, lengths, strict=True)
        ]

    def fill(self, bucket: Bucket, rows: Sequence[tuple[NullItem, Window]], height: int) -> WindowBatch:  # noqa: ARG002
        """Return a batch without padding that allocates no memory for its tokens."""
        used = np.broadcast_to(np.int64(0), (1, sum(window.length for _, window in rows)))
        return WindowBatch(bucket, used, used, used)

    def decode(self, logits: Logits, rows: Sequence[tuple[NullItem, Window]]) -> list[None]:  # noqa: ARG002
        """Return nothing for each row."""
        return [None] * len(rows)

    def compose(self, item: NullItem, decoded: Sequence[Any]) -> Result:  # noqa: ARG002
        """Return the empty result."""
        return null_result(item.query.options.task)


class NullRunner(Runner):
    """A runner without a model. It stands for any version, as there is nothing to load."""

    version = "null@0"

    def __init__(self, version: str = version, batch_s: float = 0.0) -> None:
        """``batch_s`` is how long a batch takes. The CPU is free meanwhile, as with a device."""

        def run(_: WindowBatch) -> Logits:
            time.sleep(batch_s)
            return NO_LOGITS

        name = version.partition("@")[0]
        # A version that is named after a task has that task.
        task = name if name in TASKS else DEFAULT_TASK
        served = ServedModel(name, version, SUMMARY | {"name": name, "task": task}, (EVERYTHING,), task)
        super().__init__(NullTask(needs_batches=batch_s > 0), served, run, overlaps=batch_s > 0)
