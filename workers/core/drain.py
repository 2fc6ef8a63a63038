"""The doorbell task: claim, run, commit, until the lanes are empty; then linger for a while, then sleep.

Work of several claims is in progress at once, and each round starts a batch, exchanges with Redis and finishes the
batch: so a one-line question claimed while a document is being read goes before the rest of it. On a device that leaves
the CPU free the exchange takes place while the batch runs; elsewhere before it starts. Models come and go between
batches. A lone item that comes while a drain lingers costs a millisecond: Celery wakes and supervises, it is not the
hot path.

The drain ends at the stop flag, after its batch, and hands back what it has not run. It ends at once where no model is
loaded; when idle, once nothing waits that it can do, with its bell down in the same step; when busy for long, after its
claims are done and it has rung itself again, so that Celery sees tasks end. Store errors never end it: a bell whose
task raises is gone. Outcomes in hand are committed as soon as Redis is back; if a lease is lost by then, the fence
refuses. An error that the core's process cannot outlive, met in a batch or by the loader, ends both, with everything it
held returned.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from corelane.domain.request_context import trace_id
from corelane.engine.runner import LITTLE_ITEMS, Runner
from corelane.engine.task import Work
from corelane.errors import CoreLost, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.metrics.definitions import COMMIT_S
from corelane.store.dispatch import Claim, Exchange, ExchangeRequest, Room, SliceResults
from workers.core.in_flight import InFlight
from workers.core.process import CoreProcess
from workers.core.timing import COMMIT

log = get_logger(__name__)

#: Pause after a store error, in seconds; Redis restarts take longer, and retries this far apart cost nothing.
STORE_PAUSE_S = 0.25

#: A core takes parts of other cores' items once it had no question of its own for so long, in seconds: while questions
#: come, the cores that answer them stay free for the next one, which does not wait for a window of a document. After
#: slices of larger jobs it takes parts at once.
QUIET_S = 1.0

#: How often the lanes are asked for more while a batch fills.
GATHER_CLAIMS = 4


@dataclass(slots=True)
class DrainReport:
    """Figures of one drain; Flower shows them as the task's result."""

    items: int = 0
    batches: int = 0
    refused: int = 0
    began: float = 0.0
    busy_s: float = 0.0
    #: The work of each runner, with its tokens and padding before this drain.
    works: dict[int, tuple[Work, int, int]] = field(default_factory=dict)

    def watch(self, runners: Iterable[Runner]) -> None:
        """Note how far the work of runners is, before they do any for this drain."""
        for work in (runner.work for runner in runners):
            self.works[id(work)] = work, work.tokens, work.padding

    def result(self, runners: Iterable[Runner]) -> dict[str, float]:
        """Return the figures as Flower shows them; padding is a share. Runners not watched came during the drain."""
        for work in (runner.work for runner in runners):
            self.works.setdefault(id(work), (work, 0, 0))
        tokens = sum(work.tokens - before for work, before, _ in self.works.values())
        padding = sum(work.padding - before for work, _, before in self.works.values())
        figures: dict[str, float] = {"items": self.items, "batches": self.batches, "tokens": tokens}
        figures["seconds"] = round(time.monotonic() - self.began, 2)
        figures["padding"] = round(padding / max(tokens + padding, 1), 2)
        return figures | ({"refused": self.refused} if self.refused else {})


def drain(core: CoreProcess, should_stop: Callable[[], object]) -> dict[str, float]:
    """Serve this core's lanes until told to stop or out of work; return the figures, none if the process ends."""
    report = DrainReport(began=time.monotonic())
    if not core.begin_drain():
        return {}
    report.watch(core.runners.values())
    loop = DrainLoop(core, should_stop, report)
    try:
        loop.serve()
    except (CoreLost, RuntimeLost) as error:
        loop.give_up(error)
    finally:
        core.leases = []
        # A connection that dies while the core sleeps would cost the next drain a time-out.
        core.dispatch.close()
        core.end_drain()
    return report.result(core.runners.values())


class DrainLoop:
    """One run of the drain, with the work in flight and the time it was last useful."""

    def __init__(self, core: CoreProcess, should_stop: Callable[[], object], report: DrainReport) -> None:
        self._core = core
        self._asked_to_stop = should_stop
        self._report = report
        self._in_flight = InFlight(core.runners, core.recorder, core.account, core.vitals.costs)
        self._useful = time.monotonic()
        #: Whether the last claim took all there was room for.
        self._is_full = False
        #: Whether the last claim of an idle core found nothing: the next one waits until something comes.
        self._found_nothing = False
        #: When this core last claimed or answered a question.
        self._asked = -math.inf

    def serve(self) -> None:
        """Claim and answer until the drain is over."""
        while True:
            try:
                if self._serve_once():
                    return
            except Unavailable as error:
                self._lose_store(error)
                if self._should_stop():
                    return
                with self._in_flight.times.covered():
                    time.sleep(STORE_PAUSE_S)

    def give_up(self, error: CoreLost | RuntimeLost) -> NoReturn:
        """End this process, as the core can do no more: commit outcomes, return the rest to other cores.

        The items that a process held count as tried where the process must be replaced, as one of them may be the
        cause, and not where the core is broken. Without Redis the leases lapse, and the keeper returns them.
        """
        try:
            if isinstance(error, CoreLost):
                self._hand_over()
            else:
                self._core.retire()
                self._exchange(None, linger=True)
                self._core.return_claims()
        except Unavailable as unavailable:
            log.warning("claims_left_to_the_keeper", detail=unavailable.detail)
        except Exception:
            # Whatever it is, a process whose core is lost must not live on.
            log.exception("claims_left_to_the_keeper")
        self._core.end_process(error)

    def _should_stop(self) -> bool:
        return bool(self._asked_to_stop()) or self._core.models.loads.must_restart

    def _lose_store(self, error: Unavailable) -> None:
        self._core.is_cut_off = True
        self._core.outage.lost(error.detail, "drain")
        self._core.dispatch.close()

    def _serve_once(self) -> bool:
        """Do one round of commit, claim and a batch, or wait once; return whether the drain is over."""
        core, in_flight = self._core, self._in_flight
        if core.lost is not None:
            raise core.lost
        if self._should_stop():
            self._hand_over()
            return True
        core.take_up(in_flight.is_at)
        if not core.versions and in_flight.is_empty and not in_flight.is_unsent:
            core.dispatch.sleep()
            return True
        began, was_idle = time.monotonic(), in_flight.is_empty
        overtime = began - self._report.began > core.settings.drain_s
        if overtime and was_idle:
            self._exchange(None, linger=True)
            core.dispatch.wake(core.bell)
            return True
        linger = not was_idle or began - self._useful < core.settings.linger_s
        ahead = in_flight.overlaps and not was_idle and in_flight.can_run
        if not ahead:
            has_nothing = was_idle or not in_flight.can_run
            waits, self._found_nothing = self._found_nothing and has_nothing and linger, False
            self._exchange(None if overtime else self._room(), linger=linger, wait=waits)
            if waits and not in_flight.is_empty:
                if core.lost is not None or self._should_stop():
                    return False
                began = time.monotonic()
            if in_flight.may_offer:
                # They do not wait for a batch of this core.
                self._exchange(None, linger=linger)
            if was_idle and in_flight.has_items and core.settings.batch_wait_s:
                self._gather()
            if in_flight.is_empty:
                self._found_nothing = linger
                return not linger
            if not in_flight.can_run:
                # Other cores have the rest of an item: each rings when it has read its part.
                self._found_nothing = True
                return False
        self._run_batch(began, ahead=ahead, overtime=overtime)
        return False

    def _run_batch(self, began: float, *, ahead: bool, overtime: bool) -> None:
        """Start a batch, exchange while it runs if it is ``ahead`` of that, finish it."""
        core, in_flight, is_full = self._core, self._in_flight, self._is_full
        core.vitals.running_since = batch_began = time.monotonic()
        try:
            running = in_flight.start()
            if ahead:
                self._exchange_ahead(overtime=overtime)
            items, tokens = in_flight.finish(running)
            if core.traces is not None:
                core.traces.ran(running, time.monotonic() - batch_began)
        finally:
            self._useful = time.monotonic()
            core.vitals.busy_s += self._useful - batch_began
            core.vitals.running_since = None
        core.vitals.worked.append((tokens, self._useful - began, is_full))
        self._report.items += items
        self._report.batches += 1
        self._report.busy_s += self._useful - batch_began

    def _gather(self) -> None:
        """Let a batch fill: only a core that was idle waits, so that no work in progress is held up."""
        for _ in range(GATHER_CLAIMS):
            with self._in_flight.times.covered():
                time.sleep(self._core.settings.batch_wait_s / GATHER_CLAIMS)
            room = self._room()
            if not room.tokens:
                return
            self._exchange(room, linger=True)

    def _room(self) -> Room:
        """Return the room for new claims. A document counts for an eighth of the budget at most: others join it.

        Slices overshoot the budget, so there is as much again for owners that have nothing here, and for small jobs.
        """
        budget = self._core.settings.claim_tokens
        waiting = self._in_flight.waiting_tokens(budget // 8)
        return Room(max(0, budget - waiting), max(0, 2 * budget - waiting), self._in_flight.met)

    def _exchange(self, room: Room | None, *, linger: bool, wait: bool = False) -> None:
        """Commit outcomes, drop jobs that are final, claim into the room there is: one trip. With ``wait`` an idle core
        sleeps first, until it is rung.
        """
        core, in_flight = self._core, self._in_flight
        # A version that was loaded again is not claimed for until what is in progress is done: here nothing is.
        versions = core.versions if in_flight.is_empty else core.models.claimable()
        done, versions, times = in_flight.done, versions if room else [], in_flight.times
        turn, spent = self._report.batches % max(len(versions), 1), in_flight.report()
        is_quiet = time.monotonic() - self._asked > QUIET_S
        is_free = is_quiet and room is not None and not in_flight.waiting_tokens(1)
        parts = in_flight.parts(core.bell, is_free=is_free, is_leaving=core.retired)
        lost = core.account.report_lost() if in_flight.is_unsent else []
        began = times.enter()
        try:
            request = ExchangeRequest(
                commits=done,
                jobs=in_flight.jobs,
                versions=versions[turn:] + versions[:turn],
                room=room or Room(0),
                linger=linger,
                idle=in_flight.is_empty,
                laden=in_flight.holds_document(core.settings.slice_tokens),
                previews=in_flight.previews(),
                found=in_flight.corrections(),
                spent=spent,
                sent_us=times.redis_us(),
                lost=lost,
                parts=parts,
                wait=wait,
            )
            exchanged = core.dispatch.exchange(request)
            core.account.settle_lost(lost)
            if self._has_question(done, exchanged.claim):
                self._asked = time.monotonic()
            took_s = in_flight.note_exchange(spent, exchanged, parts) - began
            self._settle(done, exchanged, took_s)
            settled = times.clock()
            in_flight.count(COMMIT, spent, settled - began)
            self._is_full = room is not None and (exchanged.claim.tokens if exchanged.claim else 0) >= room.tokens
            if exchanged.claim is not None:
                stretches = core.dispatch.fetch(exchanged.claim)
                in_flight.count(COMMIT, exchanged.claim.jobs, times.clock() - settled)
                in_flight.add(exchanged.claim, stretches)
            elif exchanged.part is not None:
                in_flight.add_part(exchanged.part)
        finally:
            times.leave()
        core.leases = in_flight.leases

    def _has_question(self, done: Mapping[str, Sequence[SliceResults]], claim: Claim | None) -> bool:
        """Return whether there are questions among what was answered or claimed."""
        refs = [outcome.ref for outcomes in done.values() for outcome in outcomes]
        refs += [ref for ref, _ in claim.refs] if claim is not None else []
        return any(ref.count <= LITTLE_ITEMS and ref.tokens <= self._core.settings.slice_tokens for ref in refs)

    def _settle(self, done: Mapping[str, Sequence[SliceResults]], exchanged: Exchange, took_s: float) -> None:
        """Take note of what became of committed outcomes and of jobs in progress."""
        core, in_flight = self._core, self._in_flight
        if done:
            core.recorder.observe(COMMIT_S, took_s)
        if core.is_cut_off:
            core.is_cut_off = False
            core.outage.served("drain")
        if core.traces is not None:
            core.traces.exchanged(core.dispatch, done, exchanged, took_s)
        if refused := in_flight.settle(done, exchanged.refused):
            # The lease was lost meanwhile: another core has the work, or had it.
            log.warning("late_answers_refused", core=str(core.core), refused=refused)
            self._report.refused += refused
        in_flight.drop_jobs(exchanged.closed)
        self._log_jobs(done, exchanged.claim)

    def _exchange_ahead(self, *, overtime: bool) -> None:
        """Exchange while a batch runs on a device: a store error must not lose its results."""
        try:
            self._exchange(None if overtime else self._room(), linger=True)
        except Unavailable as error:
            self._lose_store(error)

    def _hand_over(self) -> None:
        """Commit outcomes, and put the rest back into the lanes as it was, for other cores."""
        self._core.retire()
        self._exchange(None, linger=True)
        account = self._core.account
        for lease, refs in self._in_flight.take_unfinished().items():
            lost = account.report_lost()
            self._core.dispatch.hand_back(lease, refs, self._core.bell, lost)
            account.settle_lost(lost)

    def _log_jobs(self, committed: Mapping[str, Sequence[SliceResults]], claim: Claim | None) -> None:
        """Log failed items, and at debug level each job of a claim, with the request ids and traces they came with.

        The ids are asked for only where there is a line to write: work that goes well costs nothing.
        """
        failures = Counter[tuple[str, str]]()
        for outcome in (each for outcomes in committed.values() for each in outcomes):
            for result in outcome.results:
                if result["status"] == "failed":
                    failures[outcome.ref.job, result["error"]["code"]] += 1
        claimed = Counter[str]()
        if claim is not None and self._core.settings.log_level == "debug":
            for ref, _ in claim.refs:
                claimed[ref.job] += ref.count
        if not failures and not claimed:
            return
        origins = self._core.dispatch.request_contexts(list({job for job, _ in failures} | set(claimed)))
        ids = {
            job: {"job_id": job, "request_id": origin.request_id or None}
            | ({"trace_id": trace_id(origin.traceparent)} if origin.traceparent else {})
            for job, origin in origins.items()
        }
        for (job, code), items in failures.items():
            log.info("items_failed", items=items, code=code, **ids[job])
        for job, items in claimed.items():
            log.debug("items_claimed", items=items, **ids[job])
