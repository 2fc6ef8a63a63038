"""What one core writes into the traces of the jobs that it serves: each batch and each commit.

A job's own trace gets a ``batch`` and a ``commit`` for the core's work on it. A batch of several jobs also has its
own trace, ``shared batch``, with a link to each job; the jobs' batches link back. A core reads the trace of a job once,
after its first claim. If Redis cannot be reached, only traces are lost.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.runner import RunningBatch
from corelane.errors import Unavailable
from corelane.tracing import Attributes, Tracer, is_sampled
from workers.core.observer import CoreBatch, CoreObserver, ObservedCore, Trip

#: Jobs whose traces a core remembers; the oldest are forgotten first.
MOST_JOBS = 4096

#: Most batches, and most commits, that one core writes into the trace of a job: a larger trace cannot be displayed.
MOST_WRITTEN = 100

SYSTEM = "corelane"


class CoreTraces(CoreObserver):
    """Writes the work of one core into traces."""

    def __init__(self, tracer: Tracer, core: ObservedCore) -> None:
        self._tracer = tracer
        self._core = core.core
        self._dispatch = core.dispatch
        #: The traceparents of jobs; empty for those whose trace is not kept.
        self._parents: dict[str, str] = {}
        self._written: Counter[tuple[str, str]] = Counter()

    def committed(self, trip: Trip) -> None:
        """Write a trip to Redis that just ended, and read the traces of jobs that are new to this core."""
        if trip.request.commits:
            self._commit(trip)
        if unknown := list(dict.fromkeys(job for job in trip.claimed if job not in self._parents)):
            self._learn(unknown)

    def _learn(self, jobs: Sequence[str]) -> None:
        try:
            found = self._dispatch.request_facts(jobs)
        except Unavailable:
            return
        for job, facts in found.items():
            self._parents[job] = facts.traceparent if is_sampled(facts.traceparent) else ""
        while len(self._parents) > MOST_JOBS:
            job = next(iter(self._parents))
            del self._parents[job], self._written["batch", job], self._written["commit", job]

    def batch_finished(self, batch: CoreBatch) -> None:
        """Write a batch that just ended."""
        running = batch.running
        if running.batch is None:
            return
        rows = Counter(item.query.job for _, item, _ in running.rows)
        parents = {job: parent for job in rows if (parent := self._parents.get(job))}
        if not parents:
            return
        times, facts = _until_now(batch.seconds), self._facts(running, running.batch)
        shared = ""
        if len(rows) > 1:
            shared = self._tracer.write(
                "shared batch", "consumer", "", facts, times_ns=times, links=list(parents.values())
            )
        for job, parent in self._due("batch", parents):
            its: Attributes = {"corelane.job.id": job, "corelane.job.rows": rows[job], "corelane.batch.jobs": len(rows)}
            self._tracer.write(
                "batch", "consumer", parent, {**facts, **its}, times_ns=times, links=[shared] if shared else ()
            )

    def _commit(self, trip: Trip) -> None:
        """Write a commit that just ended, for each job in it."""
        items: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for lease, outcomes in trip.request.commits.items():
            for outcome in outcomes:
                items[outcome.ref.job] += len(outcome.results)
                refused[outcome.ref.job] += bool(trip.reply.refused.get(lease))
        times = _until_now(trip.seconds)
        for job, parent in self._due("commit", {job: self._parents.get(job, "") for job in items}):
            facts: Attributes = {
                "messaging.system": SYSTEM,
                "messaging.operation.name": "commit",
                "messaging.operation.type": "settle",
                "messaging.batch.message_count": items[job],
                "corelane.core": self._core,
                "corelane.job.id": job,
                "corelane.is_refused": True if refused[job] else None,
            }
            self._tracer.write("commit", "client", parent, facts, times_ns=times)

    def close(self) -> None:
        """Send the rest before the process ends."""
        self._tracer.flush()

    def _facts(self, running: RunningBatch, batch: WindowBatch) -> Attributes:
        used = sum(window.length for _, _, window in running.rows)
        return {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "batch",
            "messaging.operation.type": "process",
            "messaging.destination.name": running.runner.version,
            "messaging.batch.message_count": len({key for key, *_ in running.rows}),
            "corelane.core": self._core,
            "corelane.batch.rows": len(running.rows),
            "corelane.batch.shape": str(batch.bucket),
            "corelane.batch.tokens": used,
            "corelane.batch.padding_tokens": int(batch.input_ids.size) - used,
            # More than one if the batch failed and its rows ran one by one.
            "corelane.batch.passes": len(running.passes),
            "corelane.batch.read_s": round(running.read_s, 6),
            "corelane.batch.merge_s": round(running.merge_s, 6),
        }

    def _due(self, name: str, parents: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Yield the jobs with kept traces to which fewer than ``MOST_WRITTEN`` steps of this name were written."""
        for job, parent in parents.items():
            if parent and self._written[name, job] < MOST_WRITTEN:
                self._written[name, job] += 1
                yield job, parent


def _until_now(seconds: float) -> tuple[int, int]:
    """Return the start and end of a step that took ``seconds`` and just ended, in nanoseconds since the epoch."""
    now = time.time_ns()
    return now - int(1e9 * seconds), now
