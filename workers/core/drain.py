"""The doorbell task: claim, run, commit, until the lanes are empty; then linger for a while, then sleep.

Several claims are in progress at once. Each round starts a batch, exchanges with Redis and finishes the batch. So a
small job that is claimed while a document is being read goes before the rest of the document. On a device that leaves
the CPU free, the exchange happens while the batch runs, elsewhere before it starts. Models come and go between batches.

At the stop flag the drain ends after its batch, and hands back what it has not run. After a long busy time it rings
itself and ends, so that Celery sees tasks end. Store errors never end it, as the bell of a task that raises is gone.
Results that wait are committed once Redis is back. If a lease is lost by then, the fence refuses them. An error that
the core's process cannot survive ends the drain and the process, and everything they held is returned.
"""

import gc
import time
from collections.abc import Callable
from typing import NoReturn

from corelane.domain.dispatch import SLICE_TOKENS
from corelane.errors import CoreLost, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.store.dispatch import ExchangeRequest, Room
from workers.core.in_flight import InFlight
from workers.core.observer import CoreBatch, HandBack, Trip
from workers.core.process import CoreProcess

log = get_logger(__name__)

#: Longest time that one drain task runs before it rings itself again, in seconds: Flower and Celery's events show tasks
#: that have ended.
DRAIN_S = 60

#: Pause after a store error, in seconds. Redis restarts take longer, and retries at this pace cost nothing.
STORE_PAUSE_S = 0.25

#: How long an idle core waits for a second row, in seconds, and the most starts that skip the wait after one in vain.
SECOND_ROW_S, MOST_SKIPPED = 0.001, 64


def skips_after(skips: int, *, came: bool) -> int:
    """Return how many starts skip the wait for a second row: none if one came, else twice as many as before."""
    return 0 if came else min(max(1, 2 * skips), MOST_SKIPPED)


class DrainReport:
    """Figures of one drain; Flower shows them as the task's result."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.items = self.batches = self.refused = self.tokens = self.padding = 0

    def count(self, batch: CoreBatch) -> None:
        """Count a batch."""
        self.items += batch.answered
        self.batches += 1
        for done in batch.running.passes:
            self.tokens += done.tokens
            self.padding += done.padding

    def result(self) -> dict[str, float]:
        """Return the figures as Flower shows them; padding is a share of the tokens."""
        figures: dict[str, float] = {"items": self.items, "batches": self.batches, "tokens": self.tokens}
        figures["seconds"] = round(time.monotonic() - self.began, 2)
        figures["padding"] = round(self.padding / max(self.tokens + self.padding, 1), 2)
        return figures | ({"refused": self.refused} if self.refused else {})


def drain(core: CoreProcess, should_stop: Callable[[], object]) -> dict[str, float]:
    """Serve this core's lanes until asked to stop or out of work; return the figures, empty if the process ends."""
    if not core.begin_drain():
        return {}
    loop = DrainLoop(core, should_stop)
    try:
        loop.serve()
    except (CoreLost, RuntimeLost) as error:
        loop.give_up(error)
    finally:
        loop.close()
        # A connection that dies while the core sleeps would cost the next drain a timeout.
        core.dispatch.close()
        core.end_drain()
    return loop.report.result()


class DrainLoop:
    """One run of the drain, with the work in progress and the time it was last useful."""

    def __init__(self, core: CoreProcess, should_stop: Callable[[], object]) -> None:
        self._core = core
        self._asked_to_stop = should_stop
        self.report = DrainReport()
        self._observers = core.observers
        self._in_flight = InFlight(core.runners, self._observers)
        self._useful = time.monotonic()
        self._skips = self._to_skip = 1
        #: Whether an idle core's last claim found nothing: the next one then waits until work comes.
        self._found_nothing = False
        #: Whether the last claim found only work of ended jobs, and there may be more behind it.
        self._has_more = False

    def serve(self) -> None:
        """Claim and work until the drain is over."""
        while True:
            try:
                if self._serve_once():
                    return
            except Unavailable as error:
                self._lose_store(error)
                if self._should_stop():
                    return
                time.sleep(STORE_PAUSE_S)

    def close(self) -> None:
        """Drop the work in progress. There is none unless the drain failed."""
        self._core.leases = []
        self._core.vitals.rest()
        self._in_flight.take_unfinished()

    def give_up(self, error: CoreLost | RuntimeLost) -> NoReturn:
        """End this process because the core can do no more: commit results, return the rest to other cores.

        If only the process must be replaced, its items count as tried, as one of them may be the cause. If the core is
        broken, they do not. Without Redis the leases lapse, and the keeper returns them.
        """
        try:
            if isinstance(error, CoreLost):
                self._hand_over()
            else:
                self._core.retire()
                self._exchange(None, linger=True)
                self._core.return_claims(error.detail)
        except Unavailable as unavailable:
            log.warning("claims_left_to_the_keeper", detail=unavailable.detail)
        except Exception:
            # Whatever the error is, a process whose core is lost must end.
            log.exception("claims_left_to_the_keeper")
        self._core.end_process(error)

    def _should_stop(self) -> bool:
        return bool(self._asked_to_stop()) or (self._core.models.loads.must_restart and not self._in_flight.has_begun)

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
        core.swap_runners(in_flight.is_at)
        if not core.versions and in_flight.is_empty and not in_flight.done:
            core.dispatch.sleep()
            return True
        began, was_idle = time.monotonic(), in_flight.is_empty
        overtime = began - self.report.began > DRAIN_S or core.models.loads.must_restart
        if overtime and was_idle:
            self._exchange(None, linger=True)
            core.dispatch.wake(core.bell)
            return True
        linger = not was_idle or began - self._useful < core.settings.linger_s
        ahead = in_flight.overlaps and not was_idle
        if not ahead:
            waits, self._found_nothing = self._found_nothing and was_idle and linger, False
            self._exchange(None if overtime else self._room(), linger=linger, wait=waits)
            if waits and not in_flight.is_empty and (core.lost is not None or self._should_stop()):
                return False
            if was_idle and len(in_flight.pending) == 1:
                self._wait_for_row()
            if in_flight.is_empty:
                self._found_nothing = linger and not self._has_more
                return not (linger or self._has_more)
        self._run_batch(ahead=ahead, overtime=overtime)
        return False

    def _run_batch(self, *, ahead: bool, overtime: bool) -> None:
        """Start a batch, exchange with Redis while it runs if ``ahead``, and finish it."""
        batch = self._in_flight.start()
        if ahead:
            try:
                self._exchange(None if overtime else self._room(), linger=True)
            except Unavailable as error:
                # A store error must not lose the results of the batch.
                self._lose_store(error)
        self._in_flight.finish(batch)
        self.report.count(batch)
        self._useful = time.monotonic()

    def _wait_for_row(self) -> None:
        """Wait a moment and claim again, if such waits found a row lately. Only a core that was idle waits."""
        if self._to_skip:
            self._to_skip -= 1
            return
        time.sleep(SECOND_ROW_S)
        self._exchange(self._room(), linger=True)
        self._skips = self._to_skip = skips_after(self._skips, came=len(self._in_flight.pending) > 1)

    def _room(self) -> Room:
        """Return the room for new claims.

        A document counts for at most an eighth of the budget, so other work joins it. Owners without work on this
        core, and small jobs, get twice the budget.
        """
        budget = self._core.settings.claim_tokens
        waiting = self._in_flight.waiting_tokens(budget // 8)
        return Room(max(0, budget - waiting), max(0, 2 * budget - waiting), self._in_flight.pending.met)

    def _exchange(self, room: Room | None, *, linger: bool, wait: bool = False) -> None:
        """In one trip, commit results, drop jobs that are final, and claim if there is room.

        With ``wait`` an idle core sleeps first, until it is rung.
        """
        core, in_flight = self._core, self._in_flight
        request = self._request(room, linger=linger, wait=wait)
        self._observers.contributes(request)
        began = time.perf_counter()
        reply = core.dispatch.exchange(request)
        took_s = time.perf_counter() - began
        if reply.error is not None:
            request = request.without_failed(reply)
        trip = Trip(request, reply, took_s)
        self._observers.committed(trip)
        self._settle(trip)
        if reply.claim is not None:
            in_flight.add(reply.claim, core.dispatch.fetch(reply.claim))
        core.leases = in_flight.leases
        self._has_more = reply.has_more
        if reply.error is not None:
            self._lose_step(reply.error)

    def _lose_step(self, error: Exception) -> None:
        """Go on if a step of a trip failed for lack of Redis and work is left to run; else raise the error."""
        if not isinstance(error, Unavailable) or self._in_flight.is_empty:
            raise error
        self._core.is_cut_off = True
        self._core.outage.lost(error.detail, "drain")

    def _request(self, room: Room | None, *, linger: bool, wait: bool) -> ExchangeRequest:
        """Return what to send and to ask for; without room nothing is claimed."""
        core, in_flight = self._core, self._in_flight
        # A version that was loaded again is not claimed for until the work in progress is done; here there is none.
        versions = [] if room is None else core.versions if in_flight.is_empty else core.models.table.claimable()
        turn = self.report.batches % max(len(versions), 1)
        pending = in_flight.pending
        return ExchangeRequest(
            commits=in_flight.done,
            jobs=pending.jobs,
            versions=versions[turn:] + versions[:turn],
            room=room or Room(0),
            linger=linger,
            idle=in_flight.is_empty,
            laden=any(each.ref.tokens > SLICE_TOKENS for each in pending.values()),
            found=pending.corrections(),
            wait=wait,
        )

    def _settle(self, trip: Trip) -> None:
        """Handle the outcome of a trip for committed results and jobs in progress."""
        core = self._core
        if core.is_cut_off and trip.reply.error is None:
            core.is_cut_off = False
            core.outage.served("drain")
        if refused := self._in_flight.settle(trip):
            # The lease was lost meanwhile: another core has or had the work.
            log.warning("late_answers_refused", core=str(core.core), refused=refused)
            self.report.refused += refused

    def _hand_over(self) -> None:
        """Commit results, and put the rest back into the lanes as it was, for other cores."""
        self._core.retire()
        self._exchange(None, linger=True)
        for lease, refs in self._in_flight.take_unfinished().items():
            request = HandBack(refs)
            self._observers.hands_back(request)
            self._core.dispatch.hand_back(lease, refs, self._core.bell, request.lost_tokens)


def preload(target: str) -> None:
    """Import, once in the parent, what a core of this target runs, as far as a fork can inherit it.

    Importing takes 1.5 s of CPU, more than loading the built-in model; a child that replaces a killed one saves that
    time. The parent runs no code of torch, so it has no threads that a fork would lose. Libraries of an accelerator
    read their device when they are imported, so each child imports those itself.
    """
    if target == "cpu":
        import corelane.engine.backends.cpu  # noqa: F401  # torch, for the child
    # A garbage collection in a child would write to all pages that it shares with its parent.
    gc.freeze()
