"""Core's own observers of its work: its metrics, the costs of its items, and its log of jobs."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence

from corelane.domain.dispatch import cost_class
from corelane.domain.request_facts import trace_id
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.metrics.definitions import (
    BATCH_ROWS,
    BATCH_SECONDS,
    BATCH_WINDOWS,
    BATCHES,
    COMMIT_S,
    COMPUTE_S,
    MERGE_S,
    PADDING_TOKENS,
    TOKENIZE_S,
    TOKENS,
)
from corelane.metrics.recorder import Recorder
from corelane.store.dispatch import Dispatch
from workers.core.observer import CoreBatch, CoreObserver, Heartbeat, TokenizedSlices, Trip
from workers.core.pending import PendingSlice

log = get_logger(__name__)

#: Lone items are measured until this many costs wait for the next heartbeat: a core finishes more than are needed.
ENOUGH_COSTS = 64

#: Most cost reports kept for the next heartbeat.
MOST_COSTS = 10_000

#: Microseconds in a second.
US = 1_000_000

#: The costs of items: version, class, number of items, estimated tokens, tokens, windows, core microseconds.
ItemCosts = tuple[str, str, int, int, int, int, int]


class CoreMetrics(CoreObserver):
    """Adds up what the drain does, for the metrics."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def committed(self, trip: Trip) -> None:
        """Observe a commit."""
        if trip.request.commits:
            self._recorder.add(COMMIT_S, trip.seconds)

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Observe the time of tokenizing."""
        self._recorder.add(TOKENIZE_S, tokenized.seconds)

    def batch_finished(self, batch: CoreBatch) -> None:
        """Count the passes of a batch; each gets a share of the time by its windows."""
        recorder, version = self._recorder, batch.runner.version
        if batch.readers:
            recorder.add(TOKENIZE_S, batch.read_s)
        if not (passes := batch.running.passes):
            return
        recorder.add(COMPUTE_S, batch.compute_s, version)
        recorder.add(MERGE_S, batch.merge_s)
        windows = sum(done.windows for done in passes)
        for done in passes:
            shape = batch.runner.shapes[done.bucket]
            recorder.add(BATCH_ROWS, done.windows)
            recorder.add(BATCHES, 1, version, shape)
            recorder.add(BATCH_WINDOWS, done.windows, version, shape)
            recorder.add(BATCH_SECONDS, batch.compute_s * done.windows / windows, version, shape)
            recorder.add(TOKENS, done.tokens, version)
            recorder.add(PADDING_TOKENS, done.padding, version, shape)


class CostBook(CoreObserver):
    """The costs of items, by version and class: sent with each heartbeat, for forecasts (``domain.item_costs``).

    The core time of a job is divided among its slices as they are answered, by their tokens.
    """

    def __init__(self) -> None:
        #: Costs measured since the last heartbeat.
        self.costs: deque[ItemCosts] = deque(maxlen=MOST_COSTS)
        #: Core seconds spent on each job, without those of answered slices.
        self._spent: dict[str, float] = {}

    def committed(self, trip: Trip) -> None:
        """Forget jobs that are over on this core."""
        if not trip.request.jobs:
            self._spent.clear()
        else:
            self.dropped(trip.reply.closed)

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Divide the time of tokenizing among jobs."""
        self._share(tokenized.tokens, tokenized.core_s)

    def batch_finished(self, batch: CoreBatch) -> None:
        """Divide the time of a batch among jobs, and note the costs of the slices that it answered."""
        self._share(batch.readers, batch.read_core_s)
        self._share(batch.tokens, batch.core_s - batch.read_core_s)
        measures: dict[str, list[tuple[PendingSlice, str, int]]] = {}
        for pending, outcome in batch.slices:
            its = measures.setdefault(pending.ref.job, [])
            windows = [result["windows"] for result in outcome.results]
            if all(windows) and (its_class := self._class_of(pending)):
                its.append((pending, its_class, sum(windows)))
        for job, its in measures.items():
            a_token = US * self._spent.pop(job, 0.0) / max(1, sum(pending.tokens for pending, *_ in its))
            for pending, its_class, read in its:
                count = len(pending.ids)
                sums = count, pending.estimate * count, pending.tokens, read, int(a_token * pending.tokens)
                self.costs.append((pending.version, its_class, *sums))

    def dropped(self, jobs: Collection[str]) -> None:
        """Forget jobs."""
        for job in jobs:
            self._spent.pop(job, None)

    def beats(self, heartbeat: Heartbeat) -> None:
        """Report the costs since the last heartbeat, by version and class. If the heartbeat fails, they are lost."""
        sums: dict[tuple[str, str], list[int]] = {}
        while self.costs:
            version, its_class, *added = self.costs.popleft()
            before = sums.get((version, its_class), [0] * len(added))
            sums[version, its_class] = [a + b for a, b in zip(before, added, strict=True)]
        heartbeat.costs = [(version, its_class, each) for (version, its_class), each in sums.items()]

    def _share(self, tokens: Mapping[str, int], seconds: float) -> None:
        a_token = seconds / max(1, sum(tokens.values()))
        for job, its_tokens in tokens.items():
            self._spent[job] = self._spent.get(job, 0.0) + its_tokens * a_token

    def _class_of(self, pending: PendingSlice) -> str:
        """Return a slice's class; empty if it is not measured, as after a retry."""
        ref, count = pending.ref, len(pending.ids)
        is_wanted = count > 1 or ref.first or len(self.costs) < ENOUGH_COSTS
        if ref.attempt > 1 or not is_wanted:
            return ""
        return cost_class(ref.first, pending.slice.ref.tokens, [text for _, _, text in pending.slice.items])


class JobLog(CoreObserver):
    """Logs items that failed and, at debug level, claims, with the request ids and traces of the jobs.

    The ids are read only if there is a line to write, so work without failures costs nothing.
    """

    def __init__(self, dispatch: Dispatch, *, is_verbose: bool) -> None:
        """``is_verbose`` adds a line for each job of a claim."""
        self._dispatch = dispatch
        self._is_verbose = is_verbose

    def committed(self, trip: Trip) -> None:
        """Log what a trip committed and claimed."""
        failed = [
            (outcome.ref.job, result["error"]["code"])
            for outcomes in trip.request.commits.values()
            for outcome in outcomes
            for result in outcome.results
            if result["status"] == "failed"
        ]
        refs = trip.reply.claim.refs if self._is_verbose and trip.reply.claim is not None else ()
        if not failed and not refs:
            return
        failures, claimed = Counter(failed), Counter[str]()
        for ref, _ in refs:
            claimed[ref.job] += ref.count
        ids = self._ids(list({job for job, _ in failures} | set(claimed)))
        for (job, code), items in failures.items():
            log.info("items_failed", items=items, code=code, **ids[job])
        for job, items in claimed.items():
            log.debug("items_claimed", items=items, **ids[job])

    def _ids(self, jobs: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Return the fields that identify each job in a line; without Redis only its id."""
        try:
            origins = self._dispatch.request_facts(jobs)
        except Unavailable:
            return {job: {"job_id": job} for job in jobs}
        return {
            job: {"job_id": job, "request_id": origin.request_id or None}
            | ({"trace_id": trace_id(origin.traceparent)} if origin.traceparent else {})
            for job, origin in origins.items()
        }
