"""The null engine: every query gets the same empty answer, at no cost.

For measuring and testing everything around the engine (``CORELANE_TARGET=null``): the queue plane's own speed, and
chaos runs that are not bound by a model. It is a task like any other, for the same runner.
"""

import time
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corelane.domain.dispatch import estimate_tokens
from corelane.domain.jobs import JobStatus
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import Bucket
from corelane.engine.runner import Runner, ServedModel
from corelane.engine.task import Grown, Query, Ready, Result, Work
from corelane.engine.windows import Window

#: The result of every item; shared, never changed.
NULL_RESULT: Result = {
    "status": str(JobStatus.SUCCEEDED),
    "answer": None,
    "answers": [],
    "no_answer_score": 1.0,
    "windows": 0,
    "error": None,
}

#: The API's summary of any version, but for its name.
SUMMARY: dict[str, object] = {
    "target": "null",
    "dtype": "none",
    "buckets": [],
    "bytes": 0,
    "max_length": 0,
    "no_answer_threshold": 0.0,
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


#: Holds all items that wait, however long they are.
EVERYTHING = AnyShape(length=1 << 62, rows=1 << 30)

NO_LOGITS = Logits(*np.zeros((2, 0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class NullItem:
    """A query as one window of the length that it was estimated at."""

    query: Query
    windows: Sequence[Window]


class NullTask:
    """Answers at once, or with the next batch where batches take time."""

    def __init__(self, *, needs_batches: bool) -> None:
        self.work = Work()
        self.makes_fragments = False
        self.read_for: Collection[Hashable] = ()
        self._needs_batches = needs_batches

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[NullItem]]:
        """Return the answer, or an item that waits for a batch."""
        if not self._needs_batches:
            return [(key, NULL_RESULT) for key, _ in queries]
        lengths = [estimate_tokens(query.question, query.context, query.options.doc_stride) for _, query in queries]
        return [
            (key, NullItem(query, [Window(0, length, length)]))
            for (key, query), length in zip(queries, lengths, strict=True)
        ]

    def read_so_far(self) -> list[Grown[NullItem]]:
        """Return nothing: no context is read in chunks."""
        return []

    def read_on(self) -> list[Ready[NullItem]]:
        """Return nothing: no context is long here."""
        return []

    def unread_tokens(self, most_per_item: int) -> int:  # noqa: ARG002  # the signature is the protocol's
        """Return 0: no context is long here."""
        return 0

    def forget(self, keys: Collection[Hashable] | None = None) -> None:
        """Do nothing: no context is long here."""

    def fill(self, bucket: Bucket, rows: Sequence[tuple[NullItem, Window]], height: int) -> Batch:  # noqa: ARG002
        """Return a batch without padding, at the cost of its shape alone."""
        used = np.broadcast_to(np.int64(0), (1, sum(window.length for _, window in rows)))
        return Batch(bucket, used, used, used)

    def decode(self, logits: Logits, rows: Sequence[tuple[NullItem, Window]]) -> list[None]:  # noqa: ARG002
        """Return nothing for each row."""
        return [None] * len(rows)

    def compose(self, item: NullItem, decoded: Sequence[Any]) -> Result:  # noqa: ARG002
        """Return the empty answer."""
        return NULL_RESULT

    def pack(self, item: NullItem, windows: Sequence[Window]) -> bytes:  # noqa: ARG002
        """Return nothing: no item is long here."""
        return b""

    def unpack(self, fragment: bytes, about: Query) -> NullItem:
        """Refuse: no item is long here."""
        raise ValueError(f"{len(fragment)} bytes of job {about.job} are no fragment: the null engine has none")

    def pack_found(self, decoded: Sequence[None]) -> bytes:  # noqa: ARG002
        """Return nothing."""
        return b""

    def unpack_found(self, item: NullItem, windows: Sequence[Window], found: bytes) -> list[None]:  # noqa: ARG002
        """Return nothing for each window."""
        return [None] * len(windows)


class NullRunner(Runner):
    """A runner without a model. It answers for any version: there is nothing to load."""

    version = "null@0"

    def __init__(self, version: str = version, batch_s: float = 0.0) -> None:
        """``batch_s`` is the time of a batch, as on a device: the CPU is free meanwhile."""

        def run(_: Batch) -> Logits:
            time.sleep(batch_s)
            return NO_LOGITS

        name = version.partition("@")[0]
        served = ServedModel(name, version, SUMMARY | {"name": name}, (EVERYTHING,))
        super().__init__(NullTask(needs_batches=batch_s > 0), served, run, overlaps=batch_s > 0)
