"""Work that one core has claimed but not yet committed: slices of several claims, pending until all is answered."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from corelane.domain.dispatch import Ref
from corelane.engine.runner import Runner
from corelane.engine.task import Query
from corelane.errors import CorelaneError
from corelane.store.dispatch import Claim, ClaimedSlice, SliceResults
from corelane.tasks.results import failed_result
from workers.core.observer import CoreBatch, CoreObserver, TokenizedSlices, Trip
from workers.core.pending import Key, PendingSlice, PendingSlices

#: A point in time by the clock and by the CPU clock.
Mark = tuple[float, float]


class InFlight:
    """Admits claims, runs batches, collects results. The runners must be empty at the start. Not thread-safe.

    Runners may come and go between batches, except one that has work in progress.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        observers: CoreObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._runners = runners
        self._observers = observers or CoreObserver()
        self._clock, self._cpu_clock = clock, cpu_clock
        for runner in runners.values():
            runner.reset()
        self.pending = PendingSlices()
        self._turn = 0
        #: Results to commit, by lease.
        self.done: dict[str, list[SliceResults]] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no item is in progress. Results may still wait to be committed."""
        return not self.pending

    @property
    def has_begun(self) -> bool:
        """Return whether a slice is answered in part. A restart for memory waits for its other items."""
        return any(pending.results for pending in self.pending.values())

    @property
    def overlaps(self) -> bool:
        """Return whether a batch leaves the CPU free while it runs."""
        return any(runner.overlaps for runner in self._runners.values())

    @property
    def leases(self) -> list[str]:
        """Return the leases that anything here depends on."""
        return list(dict.fromkeys([*(pending.lease for pending in self.pending.values()), *self.done]))

    def is_at(self, version: str) -> bool:
        """Return whether items of a version are in progress."""
        return version in self.pending.versions

    def waiting_tokens(self, most_per_item: int) -> int:
        """Return the tokens in progress but not yet run, counting at most ``most_per_item`` for an item."""
        return sum(runner.waiting_tokens(most_per_item) for runner in self._runners.values())

    def add(self, claim: Claim, slices: Sequence[ClaimedSlice]) -> None:
        """Admit a claim. Refs whose payloads are lost fail, so that their job ends, unless the job is gone."""
        found = {each.ref.key for each in slices}
        gone = [
            SliceResults(ref, lost_payloads(ref, self._runners[version].task))
            for ref, version in claim.refs
            if ref.key not in found
        ]
        if gone:
            self.done.setdefault(claim.lease, []).extend(gone)
        by_version: dict[str, list[ClaimedSlice]] = {}
        for each in slices:
            by_version.setdefault(each.version, []).append(each)
        for version, its_slices in by_version.items():
            self._admit(claim, version, its_slices)

    def _admit(self, claim: Claim, version: str, slices: Sequence[ClaimedSlice]) -> None:
        """Hand slices of one version to its runner."""
        began, runner = self._mark(), self._runners[version]
        queries: list[tuple[tuple[Key, int], Query]] = []
        tokens: dict[str, int] = {}
        for each in slices:
            ref, pending, share = each.ref, PendingSlice.of(claim.lease, each), claim.shares.get(each.ref.owner, 1.0)
            self.pending[key := pending.key] = pending
            queries += [
                ((key, i), Query(beside, text, each.options, ref.owner, ref.priority, ref.job, ref.first + i, share))
                for i, (_, beside, text) in enumerate(each.items)
            ]
            tokens[ref.job] = tokens.get(ref.job, 0) + ref.tokens
        runner.admit(queries)
        self._note_charges(runner)
        self._observers.tokenized(TokenizedSlices(version, tokens, *self._passed(began, on_cpu=True)))

    def start(self) -> CoreBatch:
        """Start one batch of one model; models take turns."""
        began, versions = self._mark(), self.pending.versions
        self._turn += 1
        runner = self._runners[versions[self._turn % len(versions)]]
        batch = CoreBatch(runner, *began)
        self._observers.batch_started(batch)
        running = batch.running = runner.start()
        self._note_charges(runner)
        batch.readers = {self.pending[key].ref.job: 1 for key, _ in running.read_for if key in self.pending}
        windows, tokens = batch.windows, batch.tokens
        for (key, _), _, window in running.rows:
            job = self.pending[key].ref.job
            tokens[job] = tokens.get(job, 0) + window.length
            windows[job] = windows.get(job, 0) + 1
        return batch

    def finish(self, batch: CoreBatch) -> None:
        """Wait for a batch, and collect its results."""
        running = batch.running
        answered = running.finish()
        ran = self._clock() - running.merge_s
        batch.answered = len(answered)
        for (key, i), result in answered:
            pending = self.pending[key]
            ref, results, ids = pending.ref, pending.results, pending.ids
            batch.answered_tokens += ref.tokens // ref.count
            results[i] = {"index": ref.first + i, "id": ids[i], **result}
            if len(results) == len(ids):
                del self.pending[key]
                if not running.rows:
                    batch.tokens[ref.job] = batch.tokens.get(ref.job, 0) + ref.tokens
                outcome = SliceResults(ref, [results[n] for n in range(len(ids))], pending.task)
                self.done.setdefault(pending.lease, []).append(outcome)
                batch.slices.append((pending, outcome))
        batch.seconds, batch.core_s = self._passed((batch.began, batch.cpu_began), on_cpu=not batch.runner.overlaps)
        batch.read_s = running.read_s
        batch.read_core_s = batch.core_s * batch.read_s / max(batch.seconds, batch.read_s, 1e-9)
        batch.compute_s = max(0.0, ran - batch.began - batch.read_s)
        batch.merge_s = batch.began + batch.seconds - ran
        self._observers.batch_finished(batch)

    def settle(self, trip: Trip) -> int:
        """Remove what a trip committed, and stop jobs that are final; return how many slices were refused.

        If a lease is lost, its pending slices are dropped.
        """
        request, reply = trip.request, trip.reply
        self.done = {lease: outcomes for lease, outcomes in self.done.items() if lease not in request.commits}
        self._drop([key for key, pending in self.pending.items() if pending.lease in reply.lost])
        self.drop_jobs(reply.closed)
        return sum(reply.refused.values())

    def drop_jobs(self, jobs: Collection[str]) -> None:
        """Stop jobs that are final; their slices are committed without results, which frees them."""
        closing = [(key, pending) for key, pending in self.pending.items() if pending.ref.job in jobs]
        for _, pending in closing:
            self.done.setdefault(pending.lease, []).append(SliceResults(pending.ref, []))
        self._drop([key for key, _ in closing])

    def take_unfinished(self) -> dict[str, list[tuple[Ref, str]]]:
        """Remove and return all pending slices with their versions, by lease."""
        refs: dict[str, list[tuple[Ref, str]]] = {}
        for pending in self.pending.values():
            refs.setdefault(pending.lease, []).append((pending.ref, pending.version))
        self._drop(list(self.pending))
        return refs

    def _drop(self, keys: Collection[Key]) -> None:
        """Remove slices from progress. Report jobs of which nothing is left here, in progress or to be committed."""
        if not keys:
            return
        dropped = {}
        for key in keys:
            pending = self.pending.pop(key)
            self._runners[pending.version].drop([(key, i) for i in range(len(pending.ids))])
            dropped[pending.ref.job] = True
        answered = (outcome.ref.job for outcomes in self.done.values() for outcome in outcomes)
        if jobs := dropped.keys() - {*answered, *self.pending.jobs}:
            self._observers.dropped(jobs)

    def _note_charges(self, runner: Runner) -> None:
        """Replace the estimates of items by their cost, once they are tokenized."""
        for (key, _), charged, tokens in runner.charges():
            if (pending := self.pending.get(key)) is not None:
                pending.charge(charged, tokens)

    def _mark(self) -> Mark:
        return self._clock(), self._cpu_clock()

    def _passed(self, since: Mark, *, on_cpu: bool) -> tuple[float, float]:
        """Return the seconds since a mark, and how many of them the core is charged with.

        Work on the CPU counts by CPU time, but never more than elapsed time. So a job does not pay for other processes
        of the machine.
        """
        seconds, cpu_s = self._clock() - since[0], self._cpu_clock() - since[1]
        return seconds, min(seconds, cpu_s) if on_cpu else seconds


def lost_payloads(ref: Ref, task: str) -> list[dict[str, Any]]:
    """Return the results of items that are not in the store any more."""
    detail = "the item was lost from the store before it was answered; send it again"
    return [failed_result(task, ref.first + i, None, CorelaneError.code, detail) for i in range(ref.count)]
