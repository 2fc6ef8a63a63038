"""Work that one core has claimed and not yet committed: slices of several claims, pending until all is answered."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from corelane.domain.dispatch import BESIDE_TOKENS, SMALL_TOKENS, Ref, cost_class
from corelane.domain.unanswered import failed_result
from corelane.engine.runner import Runner, RunningBatch
from corelane.engine.sharing import FOUND
from corelane.engine.task import Query
from corelane.errors import CorelaneError
from corelane.metrics.definitions import (
    BATCH_ROWS,
    BATCH_SECONDS,
    BATCH_WINDOWS,
    BATCHES,
    COMPUTE_S,
    MERGE_S,
    PADDING_TOKENS,
    TOKENIZE_S,
    TOKENS,
)
from corelane.metrics.recorder import Recorder
from corelane.store.dispatch import Claim, ClaimedSlice, Exchange, LeasedPreview, SliceResults
from corelane.store.parts import NO_PARTS, WOULD_HELP, FoundPart, PartsDone, TakenPart
from workers.core.parts import PartBook
from workers.core.pending import Key, PendingSlice
from workers.core.timing import COMPUTE, MERGE, TOKENIZE, CoreAccount, CostBook, ItemCosts, Mark, TimeBook

#: A charge that is off by more than this is corrected while its slice is pending, others when it is committed.
CORRECT_TOKENS = 1024


class InFlight:
    """Takes claims in, runs batches, collects outcomes. Begins with runners that hold nothing. Not thread-safe.

    Runners may come and go between batches, but for one that is at work.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        recorder: Recorder | None = None,
        account: CoreAccount | None = None,
        costs: deque[ItemCosts] | None = None,
    ) -> None:
        """``account`` is where the core adds up what it spends, ``costs`` where it notes what items cost."""
        self._runners = runners
        self._recorder = recorder or Recorder()
        for runner in runners.values():
            runner.reset()
        self._pending: dict[Key, PendingSlice] = {}
        self._turn = 0
        self._began: Mark = (0.0, 0.0)
        #: The jobs for which a context was read on before the batch that runs.
        self._readers: dict[str, int] = {}
        #: The jobs with windows in the batch that runs, with their tokens in it.
        self._in_batch: dict[str, int] = {}
        self.times = TimeBook(account=account)
        self._costs = CostBook(costs)
        #: Parts of other cores' items, to be told; and the book of this core's, once a long item has come.
        self._found: list[FoundPart] = []
        self._parts: PartBook | None = None
        #: The jobs of the last claim, which are held though they may not be pending yet.
        self._claimed: Sequence[str] = ()
        #: Outcomes to commit, by lease.
        self.done: dict[str, list[SliceResults]] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no item is in progress; outcomes may still wait to be committed."""
        return not self._pending

    @property
    def has_items(self) -> bool:
        """Return whether items of this core are in progress, not only parts of others'."""
        return any(pending.part is None for pending in self._pending.values())

    @property
    def is_unsent(self) -> bool:
        """Return whether outcomes wait to be committed, or parts to be answered."""
        return bool(self.done or self._found)

    @property
    def can_run(self) -> bool:
        """Return whether there is something to run; without, other cores have the rest."""
        if self._parts is None or not self._parts.is_out:
            return True
        return any(runner.has_rows() for runner in self._runners.values())

    @property
    def may_offer(self) -> bool:
        """Return whether other cores wait for parts that are still here."""
        return self._parts is not None and self._parts.may_offer

    def is_at(self, version: str) -> bool:
        """Return whether items of a version are in progress."""
        return any(pending.version == version for pending in self._pending.values())

    @property
    def leases(self) -> list[str]:
        """Return the leases that anything here depends on."""
        found = (each.part.lease for each in self._found)
        return list(dict.fromkeys([*(pending.lease for pending in self._pending.values()), *self.done, *found]))

    @property
    def jobs(self) -> list[str]:
        """Return the jobs that have items in progress."""
        return list(dict.fromkeys(pending.ref.job for pending in self._pending.values()))

    @property
    def met(self) -> list[str]:
        """Return the lanes and lines of the pending slices; a lane only if a batch's worth of it is here, which is less
        beside larger work.
        """
        small: Counter[str] = Counter()
        met: dict[str, None] = {}
        for pending in self._pending.values():
            ref = pending.ref
            if pending.part is not None:
                continue
            if ref.tokens <= SMALL_TOKENS:
                small[ref.lane] += ref.tokens
            else:
                met[ref.line] = None
        enough = BESIDE_TOKENS if met else SMALL_TOKENS
        return [*met, *(lane for lane, tokens in small.items() if tokens >= enough)]

    def holds_document(self, most_tokens: int) -> bool:
        """Return whether an item in progress is larger than any slice of several items."""
        return any(pending.ref.tokens > most_tokens and pending.part is None for pending in self._pending.values())

    def waiting_tokens(self, most_per_item: int) -> int:
        """Return the tokens in progress and not yet run, counting at most ``most_per_item`` for an item."""
        return sum(runner.waiting_tokens(most_per_item) for runner in self._runners.values())

    @property
    def overlaps(self) -> bool:
        """Return whether a batch leaves the CPU free while it runs."""
        return any(runner.overlaps for runner in self._runners.values())

    def add(self, claim: Claim, stretches: Sequence[ClaimedSlice]) -> None:
        """Take a claim in. Refs without payloads fail, so that their job ends; one that is gone notices nothing."""
        began = self.times.mark()
        found = {stretch.ref.key for stretch in stretches}
        gone = [SliceResults(ref, lost_payloads(ref)) for ref, _ in claim.refs if ref.key not in found]
        if gone:
            self.done.setdefault(claim.lease, []).extend(gone)
        queries: dict[str, list[tuple[tuple[Key, int], Query]]] = {}
        tokens: dict[str, dict[str, int]] = {}
        for stretch in stretches:
            ref, count = stretch.ref, len(stretch.items)
            key, ids = (claim.lease, ref.key), [item[0] for item in stretch.items]
            estimate = ref.tokens // max(ref.count, 1)
            self._pending[key] = pending = PendingSlice(
                claim.lease, ref, stretch.version, ids, count, estimate, ref.tokens
            )
            if ref.attempt == 1 and (count > 1 or ref.first or not self._costs.has_enough):
                pending.cost_class = cost_class(ref.first, ref.tokens, [item[2] for item in stretch.items])
            queries.setdefault(stretch.version, []).extend(
                ((key, i), Query(question, context, stretch.options, ref.owner, ref.priority, ref.job))
                for i, (_, question, context) in enumerate(stretch.items)
            )
            its_tokens = tokens.setdefault(stretch.version, {})
            its_tokens[ref.job] = its_tokens.get(ref.job, 0) + ref.tokens
        self._claimed = ()
        for version, its_queries in queries.items():
            self._runners[version].admit(its_queries)
            self._note_charges(self._runners[version])
            took_s = self.times.clock() - began[0]
            self.count(TOKENIZE, tokens[version], took_s)
            self.times.share(tokens[version], self.times.worked(began, on_cpu=True))
            self._recorder.observe(TOKENIZE_S, took_s)
            began = self.times.mark()

    def add_part(self, part: TakenPart) -> None:
        """Take in a part of another core's item; one that cannot be read is given back."""
        began, ref = self.times.clock(), part.ref
        self._claimed = ()
        key, about = (part.lease, ref.key), Query("", "", owner=ref.owner, priority=ref.priority, job=ref.job)
        runner = self._runners[part.version]
        try:
            tokens = runner.admit_part((key, 0), part.payload, about)
        except ValueError:
            self._found.append(FoundPart(part))
            return
        ref = replace(ref, count=1, tokens=tokens)
        self._pending[key] = PendingSlice(part.lease, ref, part.version, [None], 0, tokens, tokens, part=part)
        self.count(TOKENIZE, [ref.job], self.times.clock() - began)

    def parts(self, bell: str, *, is_free: bool, is_leaving: bool) -> PartsDone:
        """Return what to tell and to ask about parts of long items."""
        found = tuple(self._found)
        if is_leaving:
            return PartsDone(found, bell=bell)
        if self._parts is None and any(runner.long_items for runner in self._runners.values()):
            self._parts = PartBook(self._runners)
        offer = None if self._parts is None else self._parts.offer(self._pending)
        is_free = is_free and offer is None
        return PartsDone(found, offer, is_free, bell) if found or offer else WOULD_HELP if is_free else NO_PARTS

    def start(self) -> RunningBatch:
        """Start one batch of one model, each model in its turn."""
        versions = list(dict.fromkeys(pending.version for pending in self._pending.values()))
        self._turn += 1
        runner = self._runners[versions[self._turn % len(versions)]]
        self.times.enter()
        self._began = self.times.mark()
        running = runner.start()
        self._note_charges(runner)
        self._readers = {self._pending[key].ref.job: 1 for key, _ in running.read_for if key in self._pending}
        if running.read_for:
            self.times.add(TOKENIZE, self._readers, running.read_s)
            self._recorder.observe(TOKENIZE_S, running.read_s)
        windows: dict[str, int] = {}
        for (key, _), _, window in running.rows:
            job = self._pending[key].ref.job
            self._in_batch[job] = self._in_batch.get(job, 0) + window.length
            windows[job] = windows.get(job, 0) + 1
        self.times.read(windows, self._in_batch)
        return running

    def finish(self, running: RunningBatch) -> tuple[int, int]:
        """Wait for a batch; return the number of items it answered, and their estimated tokens."""
        answered = running.finish()
        ran = self.times.clock() - running.merge_s
        tokens, in_batch = 0, self._in_batch
        for (key, i), result in answered:
            pending = self._pending[key]
            ref, results, ids = pending.ref, pending.results, pending.ids
            tokens += max(0, ref.tokens // ref.count - pending.elsewhere)
            if pending.part is not None:
                del self._pending[key]
                self._found.append(FoundPart(pending.part, result.get(FOUND, b"")))
                continue
            results[i] = {"index": ref.first + i, "id": ids[i], **result}
            if len(results) == len(ids):
                del self._pending[key]
                if not running.rows:
                    in_batch[ref.job] = in_batch.get(ref.job, 0) + ref.tokens
                outcome = SliceResults(ref, [results[n] for n in range(len(ids))], pending.is_shared)
                self.done.setdefault(pending.lease, []).append(outcome)
                self._note_costs(pending, outcome)
        self._count_batch(running, ran)
        return len(answered), tokens

    def _note_costs(self, pending: PendingSlice, outcome: SliceResults) -> None:
        """Note what a slice turned out to be, if its items are a measure for others: the model read each of them."""
        windows = [result["windows"] for result in outcome.results]
        if pending.cost_class and all(windows):
            sums = (pending.estimate * len(windows), pending.tokens, sum(windows))
            self._costs.note(outcome.ref.job, pending.version, pending.cost_class, len(windows), sums)

    def _count_batch(self, running: RunningBatch, ran: float) -> None:
        """Count the time of a batch, whose logits were there at ``ran``, for the jobs in it."""
        in_batch, self._in_batch = self._in_batch, {}
        ended, core_s = self.times.leave(), self.times.worked(self._began, on_cpu=not running.runner.overlaps)
        compute_s, merge_s = max(0.0, ran - self._began[0] - running.read_s), ended - ran
        self.times.add(COMPUTE, in_batch, compute_s)
        self.times.add(MERGE, in_batch, merge_s)
        read_s = core_s * running.read_s / max(ended - self._began[0], running.read_s) if running.read_s else 0.0
        self.times.share(self._readers, read_s)
        self.times.share(in_batch, core_s - read_s)
        if not running.passes:
            return
        recorder, version = self._recorder, running.runner.version
        recorder.observe(COMPUTE_S, compute_s, version)
        recorder.observe(MERGE_S, merge_s)
        windows = sum(done.windows for done in running.passes)
        for done in running.passes:
            shape = running.runner.shapes[done.bucket]
            recorder.observe(BATCH_ROWS, done.windows)
            recorder.add(BATCHES, 1, version, shape)
            recorder.add(BATCH_WINDOWS, done.windows, version, shape)
            recorder.add(BATCH_SECONDS, compute_s * done.windows / windows, version, shape)
            recorder.add(TOKENS, done.tokens, version)
            recorder.add(PADDING_TOKENS, done.padding, version, shape)

    def count(self, stage: int, jobs: Iterable[str], seconds: float) -> None:
        """Count a time for jobs, except for those whose batch runs meanwhile."""
        self.times.add(stage, [job for job in jobs if job not in self._in_batch] if self._in_batch else jobs, seconds)

    def note_exchange(
        self, spent: Mapping[str, Sequence[int]], exchanged: Exchange, told: PartsDone = NO_PARTS
    ) -> float:
        """Note, as soon as the reply is there, that a claim begins, that what was ``spent`` on jobs is kept, and what
        came of parts; return the present time.
        """
        claimed = self._claimed = [] if exchanged.claim is None else exchanged.claim.jobs
        if exchanged.part is not None:
            claimed.append(exchanged.part.ref.job)
        now = self.times.hold(claimed, exchanged.redis_us)
        if spent:
            self.times.settle(spent, {*claimed, *(pending.ref.job for pending in self._pending.values())})
            self._costs.settle(spent, is_idle=not self._pending)
        del self._found[: len(told.found)]
        if self._parts is not None:
            self._parts.settle(exchanged, self._pending)
        return now

    def report(self) -> dict[str, list[int]]:
        """Return what was spent on the jobs with outcomes to commit."""
        jobs = [outcome.ref.job for outcomes in self.done.values() for outcome in outcomes]
        return self.times.report(dict.fromkeys([*jobs, *(each.part.ref.job for each in self._found)]))

    def _note_charges(self, runner: Runner) -> None:
        """Replace the estimates of items by their cost once they are tokenized."""
        for (key, _), charged, tokens in runner.charges():
            if (pending := self._pending.get(key)) is not None:
                pending.unread, pending.found = pending.unread - 1, pending.found + charged
                pending.tokens += tokens
                pending.ref = replace(pending.ref, tokens=pending.found + pending.unread * pending.estimate)

    def corrections(self) -> list[tuple[str, Ref]]:
        """Return refs in progress whose charge is far off, by lease; the others are corrected when committed."""
        found = []
        for pending in self._pending.values():
            if abs(pending.ref.tokens - pending.charged) > CORRECT_TOKENS:
                pending.charged = pending.ref.tokens
                found.append((pending.lease, pending.ref))
        return found

    def previews(self) -> list[LeasedPreview]:
        """Return the best answers so far of items in progress that take long, each about once a second."""
        previews = []
        for found in [preview for runner in self._runners.values() for preview in runner.previews()]:
            key, i = found.key
            pending = self._pending[key]
            data = {
                "index": pending.ref.first + i,
                "id": pending.ids[i],
                "answer": found.result["answer"],
                "no_answer_score": found.result["no_answer_score"],
                "windows_done": found.windows_done,
                "windows_total": found.windows_total,
            }
            previews.append(LeasedPreview(pending.lease, pending.ref, data))
        return previews

    def settle(self, committed: Mapping[str, Sequence[SliceResults]], refused: Mapping[str, int]) -> int:
        """Forget committed outcomes; a lease that was refused any is lost, and its pending slices with it."""
        self.done = {lease: outcomes for lease, outcomes in self.done.items() if lease not in committed}
        lost = {lease for lease, count in refused.items() if count}
        self._drop([key for key, pending in self._pending.items() if pending.lease in lost])
        return sum(refused.values())

    def drop_jobs(self, jobs: Collection[str]) -> None:
        """Stop jobs that are final; their slices are committed without results, which frees them."""
        closing = [(key, pending) for key, pending in self._pending.items() if pending.ref.job in jobs]
        for _, pending in closing:
            if pending.part is not None:
                self._found.append(FoundPart(pending.part))
                continue
            self.done.setdefault(pending.lease, []).append(SliceResults(pending.ref, [], pending.is_shared))
        self._drop([key for key, _ in closing])

    def take_unfinished(self) -> dict[str, list[tuple[Ref, str]]]:
        """Take out all pending slices; return them with their versions, by lease. Of parts there is only the lease."""
        refs: dict[str, list[tuple[Ref, str]]] = {}
        for pending in self._pending.values():
            its = refs.setdefault(pending.lease, [])
            if pending.part is None:
                its.append((pending.ref, pending.version))
        self._drop(list(self._pending))
        return refs

    def _drop(self, keys: Collection[Key]) -> None:
        for key in keys:
            pending = self._pending.pop(key)
            self._runners[pending.version].drop([(key, i) for i in range(len(pending.ids))])
        if keys:
            answered = (outcome.ref.job for outcomes in self.done.values() for outcome in outcomes)
            found = (each.part.ref.job for each in self._found)
            self.times.keep({*answered, *found, *self._claimed, *self.jobs})


def lost_payloads(ref: Ref) -> list[dict[str, Any]]:
    """Return the results of items whose questions are no longer in the store."""
    detail = "the question was lost from the store before it was answered; send it again"
    return [failed_result(ref.first + i, None, CorelaneError.code, detail) for i in range(ref.count)]
