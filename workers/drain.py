"""The doorbell task: claim, run, commit, until the lanes are empty; then linger for a while, then sleep.

A lone item that comes while a drain lingers costs a millisecond: Celery wakes and supervises, it is not the hot
path. The drain ends at the stop flag, after its batch; when idle, once its lane is empty and its bell down in one
step; when busy for long, after ringing itself again, so that Celery sees tasks end. Store errors never end it: a
bell whose task raises is gone. Outcomes in hand are committed as soon as Redis is back; if the lease is lost by
then, the fence refuses them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corelane.engine.reading import Query
from corelane.engine.runner import QueryRunner
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.store.dispatch import Claim, Outcome, Stretch
from workers.core import CoreProcess

log = get_logger(__name__)

#: Pause after a store error, in seconds; Redis restarts take longer, and retries this far apart cost nothing.
STORE_PAUSE_S = 0.25


@dataclass(slots=True)
class Report:
    """What one drain did; shown by Flower as the task's result."""

    items: int = 0
    claims: int = 0
    refused: int = 0
    began: float = 0.0
    busy_s: float = 0.0

    def __str__(self) -> str:
        share = self.busy_s / max(time.monotonic() - self.began, 1e-6)
        refused = f" · {self.refused} refused" if self.refused else ""
        return f"{self.items} items · {self.claims} claims · {share:.0%} busy{refused}"


def drain(core: CoreProcess, should_stop: Callable[[], bool]) -> str:
    """Serve this core's lanes until told to stop or out of work; one line on what was done."""
    report = Report(began=time.monotonic())
    shift = Shift(core, should_stop, report)
    if core.runners:
        shift.serve()
    return str(report)


class Shift:
    """One run of the drain: the outcomes not yet committed, and the time it was last useful."""

    def __init__(self, core: CoreProcess, should_stop: Callable[[], bool], report: Report) -> None:
        self._core = core
        self._should_stop = should_stop
        self._report = report
        self._pending: tuple[str, list[Outcome]] | None = None
        self._useful = time.monotonic()

    def serve(self) -> None:
        """Claim and answer until the shift is over."""
        while True:
            try:
                if self._serve_once():
                    return
            except Unavailable as error:
                log.warning("drain_waits_for_store", code=error.code, detail=error.detail)
                self._core.dispatch.close()
                if self._should_stop():
                    return
                time.sleep(STORE_PAUSE_S)

    def _serve_once(self) -> bool:
        """One claim, or one wait; whether the shift is over."""
        dispatch, settings = self._core.dispatch, self._core.settings
        if self._should_stop() or time.monotonic() - self._report.began > settings.drain_s:
            self._commit()
            dispatch.wake(self._core.bell)
            return True
        linger = time.monotonic() - self._useful < settings.linger_s
        claim = self._commit_and_claim(linger)
        if claim is not None:
            self._answer(claim)
            return False
        if linger:
            dispatch.wait()
        return not linger

    def _commit(self) -> None:
        if self._pending is not None:
            self._report.refused += self._core.dispatch.commit(*self._pending)
            self._pending = None

    def _commit_and_claim(self, linger: bool) -> Claim | None:
        lease, outcomes = self._pending or (None, [])
        versions = self._rotated_versions()
        refused, claim = self._core.dispatch.commit_and_claim(lease, outcomes, versions, linger=linger)
        self._pending = None
        self._report.refused += refused
        return claim

    def _rotated_versions(self) -> Sequence[str]:
        """Every version comes first in its turn, so that none waits behind another's long lane for ever."""
        versions = self._core.versions
        turn = self._report.claims % len(versions)
        return versions[turn:] + versions[:turn]

    def _answer(self, claim: Claim) -> None:
        began = self._core.begin(claim.lease)
        try:
            stretches = self._core.dispatch.fetch(claim)
            outcomes = answer_stretches(stretches, self._core.runners)
        finally:
            self._core.end(began)
        self._pending = (claim.lease, outcomes)
        self._useful = time.monotonic()
        self._report.claims += 1
        self._report.busy_s += self._useful - began
        self._report.items += sum(len(outcome.results) for outcome in outcomes)
        log.debug("claim_answered", lease=claim.lease, items=self._report.items, seconds=round(self._useful - began, 4))


def answer_stretches(stretches: Sequence[Stretch], runners: dict[str, QueryRunner]) -> list[Outcome]:
    """Every item of every stretch answered; items of one model share its batches, whatever their jobs."""
    outcomes = []
    for version in dict.fromkeys(stretch.version for stretch in stretches):
        mine = [stretch for stretch in stretches if stretch.version == version]
        queries = [
            Query(question, context, stretch.options) for stretch in mine for _, question, context in stretch.items
        ]
        answers = iter(runners[version].answer(queries))
        for stretch in mine:
            first = stretch.ref.first
            results = [{"index": first + i, "id": item[0], **next(answers)} for i, item in enumerate(stretch.items)]
            outcomes.append(Outcome(stretch.ref, results))
    return outcomes
