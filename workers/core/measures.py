"""The metrics of a core: how long it tokenizes, computes, merges and commits, and what its passes hold."""

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
from workers.core.observer import CoreBatch, CoreObserver, TokenizedSlices, Trip


class CoreMetrics(CoreObserver):
    """Adds up what the drain does."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def committed(self, trip: Trip) -> None:
        """Observe a commit."""
        if trip.request.commits:
            self._recorder.observe(COMMIT_S, trip.seconds)

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Observe what tokenizing took."""
        self._recorder.observe(TOKENIZE_S, tokenized.seconds)

    def batch_finished(self, batch: CoreBatch) -> None:
        """Count the passes of a batch; each has its share of the time by its windows."""
        recorder, version = self._recorder, batch.runner.version
        if batch.readers:
            recorder.observe(TOKENIZE_S, batch.read_s)
        if not (passes := batch.running.passes):
            return
        recorder.observe(COMPUTE_S, batch.compute_s, version)
        recorder.observe(MERGE_S, batch.merge_s)
        windows = sum(done.windows for done in passes)
        for done in passes:
            shape = batch.runner.shapes[done.bucket]
            recorder.observe(BATCH_ROWS, done.windows)
            recorder.add(BATCHES, 1, version, shape)
            recorder.add(BATCH_WINDOWS, done.windows, version, shape)
            recorder.add(BATCH_SECONDS, batch.compute_s * done.windows / windows, version, shape)
            recorder.add(TOKENS, done.tokens, version)
            recorder.add(PADDING_TOKENS, done.padding, version, shape)
