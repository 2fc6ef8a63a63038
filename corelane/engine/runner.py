"""One artifact on one core: loaded, warmed up, fed with queries, asked for health.

``answer`` gives one result per query, in order, whatever happens to its neighbours: a batch that fails is run again
row by row, so that only the item at fault fails. CoreLost alone is passed on: then the core has to go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from tokenizers import Tokenizer

from corelane.artifacts import TOKENIZER_NAME, Artifact
from corelane.engine.answering import ReadWindow, compose_result, search_rows
from corelane.engine.backend import Backend, Batch, Logits, Model
from corelane.engine.batching import Packed, pack_windows
from corelane.engine.buckets import Bucket
from corelane.engine.reading import Query, Reader, Reading
from corelane.errors import CorelaneError, RunFailed
from corelane.jobs import JobStatus

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
WARM_UP_PASSES = 3


@dataclass(slots=True)
class Work:
    """What a runner has done so far; only ever grows."""

    items: int = 0
    batches: int = 0
    windows: int = 0
    tokens: int = 0
    padding: int = 0


class QueryRunner(Protocol):
    """What a worker needs of an engine."""

    @property
    def version(self) -> str:
        """The model version it answers with."""
        ...

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def summary(self) -> dict[str, object]:
        """What the API shows of the version."""
        ...

    @property
    def work(self) -> Work:
        """What it has done."""
        ...

    def answer(self, queries: Sequence[Query]) -> list[dict[str, Any]]:
        """One stored-form result per query, in order, less index and id."""
        ...

    def close(self) -> None:
        """Unload the model."""
        ...


class Runner:
    """Answers queries with one loaded model. Not thread-safe."""

    def __init__(self, backend: Backend, model: Model, tokenizer: Tokenizer) -> None:
        manifest = model.artifact.manifest
        self.name = manifest.name
        self.version = manifest.version_id
        self.work = Work()
        self._backend = backend
        self._model = model
        self._threshold = manifest.no_answer_threshold
        self._flexible_rows = manifest.flexible_rows
        self._ladder = sorted(Bucket(length=bucket.length, rows=bucket.rows) for bucket in manifest.buckets)
        self._reader = Reader(tokenizer, manifest.tokenizer, manifest.max_length)

    @classmethod
    def open(cls, backend: Backend, artifact: Artifact) -> Self:
        """Load an artifact; raises ArtifactRefused or LoadFailed."""
        model = backend.load(artifact)
        tokenizer = Tokenizer.from_file(str(artifact.file(TOKENIZER_NAME)))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(backend, model, tokenizer)

    @property
    def summary(self) -> dict[str, object]:
        """What the API shows of the version."""
        manifest = self._model.artifact.manifest
        return {
            "name": manifest.name,
            "target": manifest.target,
            "dtype": manifest.dtype,
            "buckets": [str(bucket) for bucket in self._ladder],
            "max_length": manifest.max_length,
            "no_answer_threshold": manifest.no_answer_threshold,
            "created_at": manifest.created_at,
        }

    def warm_up(self) -> None:
        """Run every bucket, full and with a single row, until it is at speed."""
        for bucket in self._ladder:
            for rows in (bucket.rows, 1) if self._flexible_rows else (bucket.rows,):
                ones = np.ones((rows, bucket.length), dtype=np.int64)
                for _ in range(WARM_UP_PASSES):
                    self._backend.run(self._model, Batch(bucket, ones, ones, np.zeros_like(ones)))

    def health(self) -> None:
        """Raise CoreLost if the core can do no work."""
        self._backend.health()

    def close(self) -> None:
        """Unload the model."""
        self._backend.unload(self._model)

    def answer(self, queries: Sequence[Query]) -> list[dict[str, Any]]:
        """One stored-form result per query, in order, less index and id."""
        reading = self._reader.read(queries)
        errors: dict[int, CorelaneError] = dict(reading.refused)
        found: dict[int, list[ReadWindow]] = {}
        for packed in pack_windows([window.length for window in reading.windows], self._ladder):
            for read in self._run_isolated(reading, packed, errors):
                found.setdefault(read.window.item, []).append(read)
        self.work.items += len(queries)
        return [
            _failure(errors[item])
            if item in errors
            else compose_result(query, reading.encodings[item], found.get(item, []), self._threshold)
            for item, query in enumerate(queries)
        ]

    def _run_isolated(self, reading: Reading, packed: Packed, errors: dict[int, CorelaneError]) -> list[ReadWindow]:
        try:
            return self._run(reading, packed)
        except RunFailed as error:
            if len(packed.windows) == 1:
                errors[reading.windows[packed.windows[0]].item] = error
                return []
        singles = [Packed(packed.bucket, (position,)) for position in packed.windows]
        return [read for single in singles for read in self._run_isolated(reading, single, errors)]

    def _run(self, reading: Reading, packed: Packed) -> list[ReadWindow]:
        windows = [reading.windows[position] for position in packed.windows]
        rows = len(windows) if self._flexible_rows else packed.bucket.rows
        logits = self._backend.run(self._model, self._reader.fill(reading, packed, rows))
        _check_finite(logits, len(windows))
        used = sum(window.length for window in windows)
        self.work.batches += 1
        self.work.windows += len(windows)
        self.work.tokens += used
        self.work.padding += rows * packed.bucket.length - used
        return search_rows(
            logits,
            windows,
            [self._reader.context_offset(reading, window) for window in windows],
            [reading.queries[window.item].options for window in windows],
        )


def _check_finite(logits: Logits, rows: int) -> None:
    if not (np.isfinite(logits.start[:rows]).all() and np.isfinite(logits.end[:rows]).all()):
        raise RunFailed("the model returned logits that are not numbers")


def _failure(error: CorelaneError) -> dict[str, Any]:
    return {
        "status": str(JobStatus.FAILED),
        "answer": None,
        "answers": [],
        "no_answer_score": None,
        "windows": 0,
        "error": {"code": error.code, "detail": error.detail},
    }
