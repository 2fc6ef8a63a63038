"""The doorbell task: claim, run, commit, until the lanes are empty; then linger for a while, then sleep.

Work of several claims is in progress at once, and each round runs one batch: so a one-line question claimed while a
document is being read goes before the rest of it. On a device that leaves the CPU free the next batch is committed for,
claimed and tokenised while this one runs. Between batches models come and go. A lone item that comes while a drain
lingers costs a millisecond: Celery wakes and supervises, it is not the hot path. The drain ends at the stop flag, after
its batch, handing back what it has not run; at once where no model is loaded; when idle, once nothing waits that it can
do, with its bell down in the same step; when busy for long, after its claims are done and it has rung itself again, so
that Celery sees tasks end. Store errors never end it: a bell whose task raises is gone. Outcomes in hand are committed
as soon as Redis is back; if a lease is lost by then, the fence refuses. An error that the core's process cannot
outlive, met in a batch or by the loader, ends both, with everything it held returned.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from corelane.engine.runner import nothing
from corelane.errors import CoreLost, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.store.dispatch import Room
from workers.core.in_flight import Docket
from workers.core.journal import Journal
from workers.core.process import CoreProcess

log = get_logger(__name__)

#: Pause after a store error, in seconds; Redis restarts take longer, and retries this far apart cost nothing.
STORE_PAUSE_S = 0.25

#: While a batch fills, the lanes are looked at so often.
GATHER_LOOKS = 4


@dataclass(slots=True)
class Report:
    """What one drain did; shown by Flower as the task's result."""

    items: int = 0
    batches: int = 0
    refused: int = 0
    began: float = 0.0
    busy_s: float = 0.0

    def __str__(self) -> str:
        share = self.busy_s / max(time.monotonic() - self.began, 1e-6)
        refused = f" · {self.refused} refused" if self.refused else ""
        return f"{self.items} items · {self.batches} batches · {share:.0%} busy{refused}"


def drain(core: CoreProcess, should_stop: Callable[[], bool]) -> str:
    """Serve what this core can do until told to stop or out of work; one line on what was done."""
    report = Report(began=time.monotonic())
    if not core.begin_shift():
        return "the core's process ends"
    shift = Shift(core, lambda: should_stop() or core.models.must_restart, report)
    try:
        shift.serve()
    except (CoreLost, RuntimeLost) as error:
        shift.give_up(error)
    finally:
        core.hold([])
        # A connection that dies while the core sleeps would cost the next drain a time-out.
        core.dispatch.close()
        core.end_shift()
    return str(report)


class Shift:
    """One run of the drain: what is in progress, and the time it was last useful."""

    def __init__(self, core: CoreProcess, should_stop: Callable[[], bool], report: Report) -> None:
        self._core = core
        self._should_stop = should_stop
        self._report = report
        self._docket = Docket(core.runners)
        self._journal = Journal(core.dispatch, tells_all=core.settings.log_level == "debug")
        self._useful = time.monotonic()
        #: Whether the last claim took all there was room for.
        self._is_full = False

    def serve(self) -> None:
        """Claim and answer until the shift is over."""
        while True:
            try:
                if self._serve_once():
                    return
            except Unavailable as error:
                self._core.outage.lost(error.detail, "drain")
                self._core.dispatch.close()
                if self._should_stop():
                    return
                time.sleep(STORE_PAUSE_S)

    def give_up(self, error: CoreLost | RuntimeLost) -> NoReturn:
        """The core can do no more: commit what is done, return the rest to other cores, end this process.

        What a process held that must be replaced counts as tried, as an item may be the cause; a broken core's does
        not, and it breaks once. Without Redis the leases lapse, and the keeper returns them.
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

    def _serve_once(self) -> bool:
        """One round of commit, claim and a batch, or one wait; whether the shift is over."""
        if self._core.lost is not None:
            raise self._core.lost
        if self._should_stop():
            self._hand_over()
            return True
        self._core.take_up(self._docket.is_at)
        if not self._core.versions and self._docket.is_idle:
            self._core.dispatch.sleep()
            return True
        overtime = time.monotonic() - self._report.began > self._core.settings.drain_s
        if overtime and self._docket.is_empty:
            self._exchange(None, linger=True)
            self._core.dispatch.wake(self._core.bell)
            return True
        began, was_idle = time.monotonic(), self._docket.is_empty
        linger = not self._docket.is_empty or time.monotonic() - self._useful < self._core.settings.linger_s
        ahead = self._docket.overlaps and not was_idle
        if not ahead:
            self._exchange(None if overtime else self._room(), linger=linger)
        if not self._docket.is_empty:
            if was_idle and self._core.settings.batch_wait_s:
                self._gather()
            is_full = self._is_full
            tokens = self._step(partial(self._exchange_meanwhile, overtime=overtime) if ahead else nothing)
            self._core.meter.add(tokens, time.monotonic() - began, full=is_full)
            return False
        if linger:
            self._core.dispatch.wait()
        return not linger

    def _gather(self) -> None:
        """Let a batch fill: only a core that was idle waits, so that no work in progress is held up."""
        for _ in range(GATHER_LOOKS):
            time.sleep(self._core.settings.batch_wait_s / GATHER_LOOKS)
            room = self._room()
            if not room.tokens:
                return
            self._exchange(room, linger=True)

    def _room(self) -> Room:
        """What may be claimed now. A document counts for an eighth of the budget at most: others join it.

        Slices overshoot the budget, so there is as much again for owners of whom nothing is here, and for small jobs.
        """
        budget = self._core.settings.claim_tokens
        waiting = self._docket.waiting_tokens(budget // 8)
        return Room(max(0, budget - waiting), max(0, 2 * budget - waiting), self._docket.met)

    def _exchange(self, room: Room | None, *, linger: bool) -> None:
        """Commit what is done, hear which jobs want no more, claim what there is room for: one trip."""
        docket = self._docket
        # A version that was loaded anew is not claimed for until what is in progress is done: here nothing is.
        versions = self._core.versions if docket.is_empty else self._core.models.claimable()
        done, versions = docket.done, versions if room else []
        turn = self._report.batches % max(len(versions), 1)
        exchanged = self._core.dispatch.exchange(
            done,
            docket.jobs,
            versions[turn:] + versions[:turn],
            room=room or Room(0),
            linger=linger,
            idle=docket.is_empty,
            laden=docket.holds_document(self._core.settings.slice_tokens),
            looks=docket.look(),
            found=docket.corrections(),
        )
        self._core.outage.served("drain")
        self._report.refused += docket.settle(done, exchanged.refused)
        docket.drop_jobs(exchanged.closed)
        self._is_full = room is not None and (exchanged.claim.tokens if exchanged.claim else 0) >= room.tokens
        if exchanged.claim is not None:
            docket.open(exchanged.claim, self._core.dispatch.fetch(exchanged.claim))
        self._core.hold(docket.leases)
        self._journal.tell(done, exchanged.claim)

    def _exchange_meanwhile(self, *, overtime: bool) -> None:
        """Exchange while a batch runs on a device: what it would wait for is done when it ends. Raises nothing."""
        try:
            self._exchange(None if overtime else self._room(), linger=True)
        except Unavailable as error:
            self._core.outage.lost(error.detail, "drain")
            self._core.dispatch.close()

    def _step(self, meanwhile: Callable[[], None]) -> int:
        """Run one batch; the estimated tokens it answered."""
        began = self._core.vitals.begin()
        try:
            items, tokens = self._docket.step(meanwhile)
        finally:
            self._core.vitals.end(began)
        self._useful = time.monotonic()
        self._report.items += items
        self._report.batches += 1
        self._report.busy_s += self._useful - began
        return tokens

    def _hand_over(self) -> None:
        """Commit what is done; what is not goes back to the lanes as it was, for other cores."""
        self._core.retire()
        self._exchange(None, linger=True)
        for lease, refs in self._docket.unfinished().items():
            self._core.dispatch.hand_back(lease, refs, self._core.bell)
