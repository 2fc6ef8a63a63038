"""One model on one core: loaded, warmed up, fed with queries.

Queries are admitted under a key and answered window by window, one batch at a time. Windows of all items in progress
share batches, and long texts are tokenized between batches. ``start`` begins a batch; ``finish`` waits for it and
returns the queries that it completes. On a device that leaves the CPU free, the batch runs in between, and queries may
be admitted and dropped meanwhile. The task (``task``) turns items into rows, and logits into results.

Every query gets its result, whatever happens to others: a batch that fails is run again in halves, so that only the
item at fault fails. Only RuntimeLost and CoreLost are passed on: then the process, or the core, must be replaced.
"""

import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, Self, cast

import numpy as np

from corelane.artifacts.calibration import Calibration, read_calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import LEAST_TOKENS
from corelane.domain.jobs import DEFAULT_TASK
from corelane.engine.backends.plugin import added_targets, all_targets
from corelane.engine.backends.protocol import Backend, Logits, WindowBatch
from corelane.engine.batching import Share, WaitingItem, next_batch, smallest_fit
from corelane.engine.buckets import Bucket, cut_to, tallest
from corelane.engine.passes import WARM_UP_PASSES, ForwardPass, PassTimes, choose, warm_ups
from corelane.engine.task import UNLIMITED, Query, Ready, Result, RunnerLimits, TaskEngine, Tokenized, Window, failure
from corelane.errors import ArtifactRefused, RunFailed, SetupError
from corelane.settings import Settings
from corelane.tasks.registry import task_named

#: A job with at most this many waiting tokens (three small items) gets a batch of its own, if few rows take less time.
LITTLE_TOKENS = 512

#: A query's key and its result.
Answered = tuple[Any, Result]

#: The key of a tokenized query, the tokens that it is charged, and the tokens of its windows.
Charge = tuple[Any, int, int]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A runner's view of its model: ``summary`` is for the API; the ladder's buckets grow in length.

    With flexible rows a batch may have fewer rows than its bucket, with flexible lengths shorter ones. With fixed rows
    a length may have several buckets. With ragged rows only attentions have padding. ``warm_ups`` are the passes that
    warm the model up.
    """

    name: str
    version: str
    summary: Mapping[str, object]
    ladder: Sequence[Bucket]
    task: str = DEFAULT_TASK
    flexible_rows: bool = False
    flexible_lengths: bool = False
    warm_ups: Sequence[tuple[Bucket, int]] = ()
    ragged_rows: bool = False

    @classmethod
    def of(cls, artifact: Artifact, calibration: Calibration | None, *, rows_share_kernels: bool = False) -> Self:
        """Return the description of an artifact. ``rows_share_kernels`` comes from its backend."""
        manifest = artifact.manifest
        ladder = sorted(Bucket(length=bucket.length, rows=bucket.rows) for bucket in manifest.buckets)
        summary, flexible = artifact.summary(calibration), manifest.flexible_rows
        passes = warm_ups(ladder, flexible_rows=flexible, rows_share_kernels=rows_share_kernels)
        lengths = flexible and manifest.flexible_lengths
        named = manifest.name, manifest.version_id
        return cls(*named, summary, ladder, manifest.task, flexible, lengths, passes, manifest.ragged_rows)


def engine_of(task: str) -> type[Any]:
    """Import the class that runs the models of a task; raise ArtifactRefused for an unknown task."""
    try:
        module, _, name = task_named(task).engine.partition(":")
    except ValueError as error:
        raise ArtifactRefused(f"{error}: bring this worker up to the version that compiled the model") from None
    found: type[Any] = getattr(import_module(module), name)
    return found


#: A row of a batch: the key of its query, the query in tokens, and the window.
BatchRow = tuple[Any, Tokenized, Window]


@dataclass(slots=True)
class RunningBatch:
    """A batch that was started; without rows if nothing waited."""

    runner: "Runner"
    rows: Sequence[BatchRow] = ()
    batch: WindowBatch | None = None
    logits: "Future[Logits] | None" = None
    #: The queries whose text was read further before the batch, and the seconds that took.
    read_for: Collection[Any] = ()
    read_s: float = 0.0
    #: Seconds spent on turning logits into results.
    merge_s: float = 0.0
    #: The passes that ran: several if the batch failed, and its rows ran one by one.
    passes: list[ForwardPass] = field(default_factory=list)

    def finish(self) -> list[Answered]:
        """Wait for the batch, or run it here; return the queries that are answered now."""
        return self.runner._finish(self)


@dataclass(slots=True)
class ItemInProgress:
    """One query in progress: its waiting windows, the evidence of windows that ran, and the error of a failed row."""

    item: Tokenized
    waiting: WaitingItem
    decoded: list[Any] = field(default_factory=list)
    error: RunFailed | None = None
    #: For each window that is read, the other windows with an equal row of tokens, which are not read.
    others: dict[Window, list[Window]] = field(default_factory=dict)

    @property
    def evidence(self) -> list[Any]:
        """Return the evidence of all windows. A window that is not read gets that of the window with an equal row."""
        if not self.others:
            return self.decoded
        return self.decoded + [
            replace(found, window=window) for found in self.decoded for window in self.others.get(found.window, ())
        ]

    @property
    def is_over(self) -> bool:
        """Return whether the query needs no more windows, except those in a running batch."""
        return self.error is not None or not self.waiting.left


class Runner:
    """Gives the results of queries with one loaded model. Not thread-safe."""

    #: The most tokens of a batch of several rows, where its bucket does not say.
    most_tokens: float = math.inf

    #: The memory that the process may hold after one of its batches, in MB.
    max_memory_mb: float | None = None

    def __init__(
        self,
        task: TaskEngine[Any],
        served: ServedModel,
        run: Callable[[WindowBatch], Logits],
        *,
        overlaps: bool = False,
        limits: RunnerLimits = UNLIMITED,
        unload: Callable[[], None] | None = None,
    ) -> None:
        """``run`` is the model's forward pass; ``overlaps`` says that it leaves the CPU free."""
        self.name = served.name
        self.version = served.version
        self.summary = served.summary
        #: The name of the model's task.
        self.task = served.task
        self.work = task.work
        self.overlaps = overlaps
        self._task = task
        self._run = run
        self._unload = unload
        self._flexible_rows = served.flexible_rows
        self._flexible_lengths = served.flexible_lengths
        self._ladder = tallest(served.ladder)
        #: Whether fewer rows may take less time.
        self._chooses = served.flexible_rows or len(self._ladder) < len(served.ladder)
        self._warm_ups = served.warm_ups
        #: The buckets' names in metrics.
        self.shapes = {bucket: str(bucket) for bucket in served.ladder}
        #: The longest time of a batch, in seconds, because a small job waits for the batch that runs.
        self._batch_s = limits.latency_target_s
        self._times = PassTimes(served.ladder, flexible_rows=served.flexible_rows, ragged=served.ragged_rows)
        self._shares: dict[str, Share] = {}
        self._arrivals = 0
        self._progress: dict[Hashable, ItemInProgress] = {}
        self._by_arrival: dict[int, Hashable] = {}
        self._answered: list[Answered] = []
        self._charges: list[Charge] = []
        self._device = ThreadPoolExecutor(1, "device") if overlaps else None

    @classmethod
    def open(cls, backend: Backend, artifact: Artifact, limits: RunnerLimits = UNLIMITED) -> Self:
        """Load an artifact, and its calibration if it has one; raise ArtifactRefused or LoadFailed."""
        manifest = artifact.manifest
        task_type = engine_of(manifest.task)
        if issubclass(task_type, Runner):
            # A task whose models run in their own way.
            return cast(Self, task_type.open(backend, artifact, limits))
        calibration = read_calibration(artifact.path, manifest.version)
        task = task_type.open(artifact, limits, calibration)
        model = backend.load(artifact)
        served = ServedModel.of(artifact, calibration, rows_share_kernels=backend.rows_share_kernels)
        run, unload = partial(backend.run, model), partial(backend.unload, model)
        return cls(task, served, run, overlaps=backend.overlaps, limits=limits, unload=unload)

    def warm_up(self) -> None:
        """Run the passes that warm the model up."""
        for bucket, rows in self._warm_ups:
            ones = np.ones((rows, bucket.length), dtype=np.int64)
            # Two tokens in turn: one of them is not padding, and some networks (mBART) look for such a token.
            ids = np.cumsum(ones, axis=1) % 2
            for _ in range(WARM_UP_PASSES):
                self._times.begin()
                self._run(WindowBatch(bucket, ids, ones, np.zeros_like(ones)))
                self._times.end(bucket, ids.shape, ids.size)

    def close(self) -> None:
        """Unload the model."""
        if self._device is not None:
            self._device.shutdown()
        if self._unload is not None:
            self._unload()

    def results_of(self, queries: Sequence[Query]) -> list[Result]:
        """Admit queries and run batches until all are answered; return their results, in order."""
        self.admit(list(enumerate(queries)))
        results: dict[Hashable, Result] = {}
        while len(results) < len(queries):
            results.update(self.start().finish())
        return [results[number] for number in range(len(queries))]

    def admit(self, queries: Sequence[tuple[Hashable, Query]]) -> None:
        """Admit queries, each under its own key. A query that cannot be answered fails with the next batch."""
        self._take_in(self._task.tokenize(queries))

    def _take_in(self, ready: Sequence[Ready[Any]]) -> None:
        for key, item in ready:
            if isinstance(item, dict):
                self._answered.append((key, item))
                continue
            waiting = self._put(key, item).waiting
            self._charges.append((key, max(LEAST_TOKENS, waiting.tokens), waiting.tokens))

    def _put(self, key: Hashable, item: Tokenized) -> ItemInProgress:
        """Put an item into progress. Of equal rows only the first is read.

        The last digits of logits depend on a row's place in the batch. So equal texts would rank in no fixed order.
        """
        self._arrivals += 1
        query, windows = item.query, item.windows
        waiting = WaitingItem(self._arrivals, query.owner, query.priority, job=query.job, share=query.share)
        progress = self._progress[key] = ItemInProgress(item, waiting)
        if len(windows) > 1:
            first: dict[Hashable, Window] = {}
            for window in windows:
                if (same := first.setdefault(self._task.row_key(item, window), window)) is not window:
                    progress.others.setdefault(same, []).append(window)
            windows = list(first.values())
        waiting.add(windows, self._ladder_of(item))
        self._by_arrival[self._arrivals] = key
        return progress

    def _ladder_of(self, item: Tokenized) -> Sequence[Bucket]:  # noqa: ARG002  # for tasks whose items do not all mix
        """Return the buckets in which an item's windows may run."""
        return self._ladder

    def _take_out(self, key: Hashable) -> None:
        """Remove a query from progress, with its waiting windows."""
        del self._by_arrival[self._progress.pop(key).waiting.arrival]

    def charges(self) -> list[Charge]:
        """Return the charges for the queries that were tokenized since the last call."""
        charges, self._charges = self._charges, []
        return charges

    def waiting_tokens(self, most_per_item: int) -> int:
        """Return the tokens admitted but not yet run, counting at most ``most_per_item`` for an item."""
        unread = self._task.unread_tokens(most_per_item)
        return unread + sum(min(progress.waiting.tokens, most_per_item) for progress in self._progress.values())

    def drop(self, keys: Collection[Hashable]) -> None:
        """Drop queries; keys that are not in progress are ignored."""
        keys = set(keys)
        self._answered = [answered for answered in self._answered if answered[0] not in keys]
        self._task.forget(keys)
        for key in keys & self._progress.keys():
            self._take_out(key)

    def reset(self) -> None:
        """Drop all queries, as after an error that left some behind."""
        self._progress, self._by_arrival, self._answered, self._charges, self._shares = {}, {}, [], [], {}
        self._task.forget()

    def start(self) -> RunningBatch:
        """Tokenize the next chunk of one long text, if there is any, and start one batch of waiting windows."""
        began = time.perf_counter()
        self._take_in(self._task.read_on())
        read_for, read_s = self._task.read_for, time.perf_counter() - began
        waiting = [progress.waiting for progress in self._progress.values()]
        if self._chooses:
            table = self._times.table()
            most_rows = partial(table.rows_within, seconds=self._batch_s) if self._flexible_rows else attrgetter("rows")
            rule = partial(choose, table=table, most_rows=most_rows)
            chosen = next_batch(waiting, self._shares, rule, LITTLE_TOKENS)
        else:
            chosen = next_batch(waiting, self._shares, most_tokens=self.most_tokens)
        if chosen is None:
            return RunningBatch(self, read_for=read_for, read_s=read_s)
        bucket, windows = chosen
        keys = [self._by_arrival[item.arrival] for item, _ in windows]
        rows = [(key, self._progress[key].item, window) for key, (_, window) in zip(keys, windows, strict=True)]
        running = self._launch(bucket, rows)
        running.read_for, running.read_s = read_for, read_s
        return running

    def _launch(self, bucket: Bucket, rows: Sequence[BatchRow]) -> RunningBatch:
        self._times.begin()
        bucket = self._times.table().shape(bucket, len(rows)) if self._chooses else bucket
        height = len(rows) if self._flexible_rows else bucket.rows
        batch = self._task.fill(bucket, [(item, window) for _, item, window in rows], height)
        if self._flexible_lengths:
            length = cut_to(max(window.length for _, _, window in rows))
            batch = batch if length >= bucket.length else batch.cut(length)
        logits = None if self._device is None else self._device.submit(self._run, batch)
        return RunningBatch(self, rows, batch, logits)

    def _finish(self, running: RunningBatch) -> list[Answered]:
        self._collect(running)
        merge_began = time.perf_counter()
        answered, self._answered = self._answered, []
        for key, progress in [each for each in self._progress.items() if each[1].is_over]:
            self._take_out(key)
            answered.append((key, self._compose(progress)))
        self.work.items += len(answered)
        running.merge_s += time.perf_counter() - merge_began
        return answered

    def _compose(self, progress: ItemInProgress) -> Result:
        if progress.error is not None:
            return failure(progress.item.query, progress.error)
        return self._task.compose(progress.item, progress.evidence)

    def _collect(self, running: RunningBatch) -> None:
        """Decode a batch. If it fails, run each half of it alone; a row that fails alone fails its query."""
        if (batch := running.batch) is None:
            return
        try:
            decoded = self._decode(running, batch)
        except RunFailed as error:
            left = [row for row in running.rows if row[0] in self._progress]
            if len(running.rows) == 1:
                for key, *_ in left:
                    self._progress[key].error = error
                return
            bucket, middle = smallest_fit(batch.bucket.length, self._ladder), (len(left) + 1) // 2
            for half in filter(None, (left[:middle], left[middle:])):
                again = self._launch(bucket, half)
                self._collect(again)
                running.merge_s += again.merge_s
                running.passes += again.passes
            return
        for (key, *_), found in zip(running.rows, decoded, strict=True):
            # Queries may have been dropped meanwhile.
            if key in self._progress:
                self._progress[key].decoded.append(found)

    def _decode(self, running: RunningBatch, batch: WindowBatch) -> list[Any]:
        rows = [(item, window) for _, item, window in running.rows]
        logits = self._run(batch) if running.logits is None else running.logits.result()
        if not all(np.isfinite(each[: len(rows)]).all() for each in logits):
            raise RunFailed("the model returned logits that are not numbers")
        used = sum(window.length for _, window in rows)
        done = ForwardPass(batch.bucket, len(rows), used, batch.input_ids.size - used)
        running.passes.append(done)
        self.work.batches += 1
        self.work.windows += done.windows
        self.work.tokens += done.tokens
        self.work.padding += done.padding
        ran = time.perf_counter()
        decoded = self._task.decode(logits, rows)
        running.merge_s += time.perf_counter() - ran
        self._times.end(batch.bucket, batch.input_ids.shape, used)
        return decoded


def open_backend(target: str, settings: Settings | None = None) -> Backend:
    """Open the backend for a target, with its heavy imports; raises SetupError if it is not available here.

    The targets of plugins read ``settings``; None means the settings of this process.
    """
    if target == "cpu":
        from corelane.engine.backends.cpu import CpuBackend

        return CpuBackend()
    if (added := added_targets().get(target)) is not None:
        return added.open(settings or Settings())
    raise SetupError(f"no backend runs artifacts of target {target!r}; this build has: {', '.join(all_targets())}")
