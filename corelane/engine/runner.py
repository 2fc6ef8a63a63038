"""One artifact on one core: loaded, warmed up, fed with queries, asked for health.

Queries are admitted under a key and answered window by window, one batch at a step: windows of all items in progress
share batches, and long contexts are tokenised between them. Every query gets its result whatever happens to its
neighbours: a batch that fails is run again row by row, so that only the item at fault fails. RuntimeLost and CoreLost
alone are passed on: then the process, or the core, has to go. On a device that leaves the CPU free a step has something
else done while the batch runs, on a thread of its own.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from tokenizers import Tokenizer

from corelane.artifacts.calibration import Calibration, read_calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import LEAST_TOKENS
from corelane.engine.backends.protocol import Backend, Batch, Logits, Model, check_finite
from corelane.engine.batching.choose import Share, Waiting, next_batch
from corelane.engine.batching.pace import Pace
from corelane.engine.batching.previews import LongReads, SoFar
from corelane.engine.buckets import Bucket
from corelane.engine.decode.answers import ReadWindow, compose_failure, compose_result, search_rows
from corelane.engine.text.cache import Context
from corelane.engine.text.chunks import Unread
from corelane.engine.text.tokenize import Query, Reader, Reading
from corelane.engine.text.tokenizer import open_tokenizer
from corelane.engine.text.windows import Window
from corelane.errors import CorelaneError, NotCalibrated, RunFailed

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
WARM_UP_PASSES = 3

#: A job with no more than this waiting (three questions) is answered by itself, where short batches are quick.
LITTLE_TOKENS = 512

#: A query's key and its result in stored form, less index and id.
Answered = tuple[Any, dict[str, Any]]

#: The key of a query that was read, and the tokens of its windows.
Charge = tuple[Any, int]


@dataclass(slots=True)
class Work:
    """What a runner has done so far; only ever grows."""

    items: int = 0
    batches: int = 0
    windows: int = 0
    tokens: int = 0
    padding: int = 0
    contexts_hit: int = 0
    contexts_read: int = 0


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """What a runner keeps to: the time of one batch, tokens of contexts kept for later queries, windows of a query."""

    latency_target_s: float = math.inf
    context_cache_tokens: int = 0
    max_windows: float = math.inf


UNLIMITED = RunnerLimits()


def nothing() -> None:
    """What is done while a batch runs, by default."""


class QueryRunner(Protocol):
    """What a worker needs of an engine. Not thread-safe."""

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

    def waiting_tokens(self, most_per_item: int) -> int:
        """Tokens admitted and not yet run, an item counting for ``most_per_item`` at most."""
        ...

    def admit(self, queries: Sequence[tuple[Hashable, Query]]) -> None:
        """Take queries in, each under a key of its own."""
        ...

    def found(self) -> list[Charge]:
        """Return what was read since the last call."""
        ...

    @property
    def overlaps(self) -> bool:
        """Whether a step has something else done while its batch runs."""
        ...

    def step(self, meanwhile: Callable[[], None] = nothing) -> list[Answered]:
        """Run one batch; the queries that are answered now. Nothing left to do is no error.

        ``meanwhile`` is called once where the runner overlaps, while the batch runs if there is one; it may admit and
        drop queries, and must not raise, or what the batch found is lost.
        """
        ...

    def look(self) -> list[SoFar]:
        """What was found so far of queries that take long, each about once a second."""
        ...

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget queries; keys that are not in progress are no error."""
        ...

    def reset(self) -> None:
        """Forget all queries, as after an error that left some behind."""
        ...

    def close(self) -> None:
        """Unload the model."""
        ...


@dataclass(slots=True)
class Progress:
    """One query on its way: its windows that wait, what was found in the others, and why it failed if it did."""

    reading: Reading
    waiting: Waiting
    found: list[ReadWindow] = field(default_factory=list)
    error: CorelaneError | None = None


class Runner:
    """Answers queries with one loaded model. Not thread-safe."""

    def __init__(
        self,
        backend: Backend,
        model: Model,
        tokenizer: Tokenizer,
        limits: RunnerLimits = UNLIMITED,
        calibration: Calibration | None = None,
    ) -> None:
        manifest = model.artifact.manifest
        self.name = manifest.name
        self.version = manifest.version_id
        self.work = Work()
        self._backend = backend
        self._model = model
        self._threshold = manifest.no_answer_threshold
        self._calibration = calibration
        self._flexible_rows = manifest.flexible_rows
        self._ladder = sorted(Bucket(length=bucket.length, rows=bucket.rows) for bucket in manifest.buckets)
        bounds = (manifest.max_length, limits.context_cache_tokens, limits.max_windows)
        self._reader = Reader(tokenizer, manifest.tokenizer, *bounds)
        self._unread = Unread(tokenizer)
        self._pace = Pace(limits.latency_target_s)
        self._shares: dict[str, Share] = {}
        self._arrivals = 0
        self._progress: dict[Hashable, Progress] = {}
        self._by_arrival: dict[int, Hashable] = {}
        self._refused: list[Answered] = []
        self._found: list[Charge] = []
        self._long = LongReads()
        self._device = ThreadPoolExecutor(1, "device") if backend.overlaps else None

    @classmethod
    def open(
        cls, backend: Backend, artifact: Artifact, limits: RunnerLimits = UNLIMITED, *, calibrated: bool = True
    ) -> Self:
        """Load an artifact and, if ``calibrated``, its calibration where it has one; raises ArtifactRefused or
        LoadFailed.
        """
        calibration = read_calibration(artifact.path, artifact.manifest.version) if calibrated else None
        tokenizer = open_tokenizer(artifact)
        return cls(backend, backend.load(artifact), tokenizer, limits, calibration)

    @property
    def summary(self) -> dict[str, object]:
        """What the API shows of the version."""
        return self._model.artifact.summary(calibrated=self._calibration is not None)

    def warm_up(self) -> None:
        """Run every bucket, with a single row and full, until it is at speed; the last pass tells its pace."""
        for bucket in self._ladder:
            for rows in (1, bucket.rows) if self._flexible_rows else (bucket.rows,):
                ones = np.ones((rows, bucket.length), dtype=np.int64)
                for _ in range(WARM_UP_PASSES):
                    began = time.perf_counter()
                    self._backend.run(self._model, Batch(bucket, ones, ones, np.zeros_like(ones)))
            self._pace.note(bucket, bucket.rows, time.perf_counter() - began)

    def health(self) -> None:
        """Raise CoreLost if the core can do no work."""
        self._backend.health()

    @property
    def overlaps(self) -> bool:
        """Whether the backend leaves the CPU free."""
        return self._device is not None

    def close(self) -> None:
        """Unload the model."""
        if self._device is not None:
            self._device.shutdown()
        self._backend.unload(self._model)

    def answer(self, queries: Sequence[Query]) -> list[dict[str, Any]]:
        """One result per query, in order: all of them admitted, and steps until they are done."""
        self.admit(list(enumerate(queries)))
        results: dict[Hashable, dict[str, Any]] = {}
        while len(results) < len(queries):
            results.update(self.step())
        return [results[number] for number in range(len(queries))]

    def admit(self, queries: Sequence[tuple[Hashable, Query]]) -> None:
        """Take queries in, each under a key of its own; one that cannot be answered fails with the next step."""
        at_once = []
        for key, query in queries:
            if query.options.min_precision is not None and self._calibration is None:
                self._refused.append((key, compose_failure(self._no_probabilities())))
            elif self._unread.takes(query) and not self._reader.keeps(query.context):
                self._unread.add(key, query)
            else:
                at_once.append((key, query))
        self._take_in(at_once)

    def _take_in(self, queries: Sequence[tuple[Hashable, Query]], known: Mapping[str, Context] | None = None) -> None:
        readings = self._reader.read([query for _, query in queries], known)
        self.work.contexts_hit, self.work.contexts_read = self._reader.contexts_hit, self._reader.contexts_read
        for (key, _), reading in zip(queries, readings, strict=True):
            if isinstance(reading, CorelaneError):
                self._refused.append((key, compose_failure(reading)))
                continue
            self._arrivals += 1
            query = reading.query
            self._pace.heard(f"{query.owner}:{query.job}")
            waiting = Waiting.of(self._arrivals, reading.windows, self._ladder, query.owner, query.priority, query.job)
            self._progress[key] = Progress(reading, waiting)
            self._found.append((key, max(LEAST_TOKENS, waiting.tokens)))
            self._long.add(key, len(reading.windows))
            self._by_arrival[self._arrivals] = key

    def _no_probabilities(self) -> NotCalibrated:
        return NotCalibrated(
            f"{self.version} is not calibrated, so `min_precision` means nothing to it; leave it out, or calibrate the "
            "model with `corelane calibrate`"
        )

    def found(self) -> list[Charge]:
        """Return what was read since the last call."""
        found, self._found = self._found, []
        return found

    def waiting_tokens(self, most_per_item: int) -> int:
        """Tokens admitted and not yet run, an item counting for ``most_per_item`` at most."""
        unread = self._unread.tokens(most_per_item)
        return unread + sum(min(progress.waiting.tokens, most_per_item) for progress in self._progress.values())

    def look(self) -> list[SoFar]:
        """What was found so far of queries that take long, each about once a second."""
        return self._long.look(self._look_at)

    def _look_at(self, key: Hashable) -> SoFar | None:
        progress = self._progress[key]
        if progress.error is not None or not progress.found:
            return None
        result = self._respond(progress.reading, progress.found)
        return SoFar(key, len(progress.found), len(progress.reading.windows), result)

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget queries; keys that are not in progress are no error."""
        keys = set(keys)
        self._refused = [answered for answered in self._refused if answered[0] not in keys]
        self._unread.drop(keys)
        for key in keys & self._progress.keys():
            self._finish(key)

    def reset(self) -> None:
        """Forget all queries, as after an error that left some behind."""
        self._progress, self._by_arrival, self._refused, self._found, self._shares = {}, {}, [], [], {}
        self._unread.clear()
        self._long.clear()

    def step(self, meanwhile: Callable[[], None] = nothing) -> list[Answered]:
        """Read on in one long context, if any, and run one batch; the queries that are answered now."""
        if (read := self._unread.read_on()) is not None:
            text, context, queries = read
            self._take_in(queries, {text: context})
        answered, self._refused = self._refused, []
        waiting = (progress.waiting for progress in self._progress.values())
        if self._flexible_rows:
            chosen = next_batch(waiting, self._shares, self._pace.rows, LITTLE_TOKENS)
        else:
            chosen = next_batch(waiting, self._shares)
        if chosen is None:
            if self.overlaps:
                meanwhile()
        else:
            bucket, windows = chosen
            rows = [(self._by_arrival[item.arrival], window) for item, window in windows]
            self._run_isolated(bucket, rows, meanwhile)
            for key in dict.fromkeys(key for key, _ in rows):
                progress = self._progress.get(key)
                if progress is not None and (progress.error is not None or not progress.waiting.left):
                    answered.append((key, self._compose(self._finish(key))))
        self.work.items += len(answered)
        return answered

    def _finish(self, key: Hashable) -> Progress:
        """Take a query out of progress, with whatever of it still waited."""
        progress = self._progress.pop(key)
        self._long.drop([key])
        del self._by_arrival[progress.waiting.arrival]
        return progress

    def _compose(self, progress: Progress) -> dict[str, Any]:
        if progress.error is not None:
            return compose_failure(progress.error)
        reading = progress.reading
        return self._respond(reading, progress.found)

    def _respond(self, reading: Reading, found: Sequence[ReadWindow]) -> dict[str, Any]:
        """The result of what was found; for calibrating, something else may be made of it."""
        return compose_result(reading.query, reading.context, found, self._threshold, self._calibration)

    def _run_isolated(
        self, bucket: Bucket, rows: list[tuple[Hashable, Window]], meanwhile: Callable[[], None] = nothing
    ) -> None:
        """Run rows, and one by one if that fails; a row that fails alone fails its query. Queries may go meanwhile."""
        try:
            found = self._run(bucket, rows, meanwhile)
        except RunFailed as error:
            left = [row for row in rows if row[0] in self._progress]
            if len(rows) == 1:
                for key, _ in left:
                    self._progress[key].error = error
                return
            for row in left:
                self._run_isolated(bucket, [row])
            return
        for (key, _), read in zip(rows, found, strict=True):
            if key in self._progress:
                self._progress[key].found.append(read)

    def _run(
        self, bucket: Bucket, rows: list[tuple[Hashable, Window]], meanwhile: Callable[[], None]
    ) -> list[ReadWindow]:
        pairs = [(self._progress[key].reading, window) for key, window in rows]
        windows = [window for _, window in pairs]
        height = len(rows) if self._flexible_rows else bucket.rows
        began = time.perf_counter()
        logits = self._compute(self._reader.fill(bucket, pairs, height), meanwhile)
        check_finite(logits, len(rows))
        used = sum(window.length for window in windows)
        self.work.batches += 1
        self.work.windows += len(rows)
        self.work.tokens += used
        self.work.padding += height * bucket.length - used
        found = search_rows(
            logits,
            windows,
            [reading.context_at for reading, _ in pairs],
            [reading.query.options for reading, _ in pairs],
        )
        self._pace.note(bucket, height, time.perf_counter() - began)
        return found

    def _compute(self, batch: Batch, meanwhile: Callable[[], None]) -> Logits:
        if self._device is None:
            return self._backend.run(self._model, batch)
        running = self._device.submit(self._backend.run, self._model, batch)
        meanwhile()
        return running.result()
