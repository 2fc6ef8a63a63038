"""Core's own observers of its work: its metrics, and its log of jobs."""

from collections import Counter
from collections.abc import Sequence

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
from workers.core.observer import CoreBatch, CoreObserver, TokenizedSlices, Trip

log = get_logger(__name__)


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
