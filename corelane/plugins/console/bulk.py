"""Bulk actions: retry or cancel every job that a filter selects, one bounded step at a time.

A step reads a page of jobs, newest first, and goes through it. It ends early if the service is busy or its time is up;
the next one begins with the first job that was not looked at. A retry is newer than its job, so the steps never meet
the jobs that they make. A step may be repeated: canceled jobs are final then, and retried jobs are not retried again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from corelane.domain.bulk import BulkAction, BulkJob, BulkReason, BulkRequest, BulkResult
from corelane.domain.jobs import Counts, JobStatus
from corelane.domain.request_facts import RequestFacts
from corelane.errors import CorelaneError, InvalidInput, Overloaded, Unavailable
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.submitting.retries import retry
from corelane.submitting.submitter import Submitter

#: Jobs in one step, and the seconds after which it ends early.
STEP_JOBS, STEP_S = 100, 5.0


#: Why a job is not changed, in words, by code. Any other code is the code of a problem.
REASONS = {
    "already_final": "they are final already",
    "not_final": "they are not final yet: wait for them, or cancel them",
    "nothing_to_retry": "all their items were answered",
    "fails_again": "what failed of them would fail again: change these items, and send them as new jobs",
    "already_retried": "they were retried before",
    "items_lost": "they lack their items",
    "not_found": "they were deleted meanwhile",
}


@dataclass(slots=True)
class _Tally:
    """Counts the jobs that a step has changed so far."""

    done: list[BulkJob] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)

    def skip(self, error: CorelaneError) -> None:
        self.skipped[error.code] += 1
        self.details.setdefault(error.code, error.detail)

    @property
    def reasons(self) -> list[BulkReason]:
        """Return why jobs are not changed, the most frequent reason first."""
        known = REASONS | self.details
        counts = ((code, count) for code, count in self.skipped.most_common() if count)
        return [BulkReason(code=code, detail=known.get(code, code), count=count) for code, count in counts]


class Bulk:
    """Does bulk actions."""

    def __init__(self, submitter: Submitter, store: JobStore, settings: Settings) -> None:
        self._submitter = submitter
        self._store = store
        self._settings = settings
        self._files = ItemFiles(settings)

    async def step(self, asked: BulkRequest, owner: str, origin: RequestFacts) -> BulkResult:
        """Do one step for the jobs of an owner, or of ALL_OWNERS.

        Raise InvalidInput for a filter that selects every job; Overloaded or Unavailable if nothing could be done now.
        """
        if asked.filter.is_empty:
            raise InvalidInput("this filter takes every job: name a status, a time or another field of it")
        page = await self._store.page(owner, asked.filter, asked.after, STEP_JOBS)
        tally, cursor = _Tally(), page.next
        if asked.action is BulkAction.CANCEL:
            await self._cancel(tally, page.records, is_dry=asked.dry_run)
        else:
            looked = await self._retry(tally, page.records, origin, is_dry=asked.dry_run)
            if looked < len(page.records):
                cursor = page.records[looked - 1].id
        return BulkResult(
            action=asked.action,
            dry_run=asked.dry_run,
            matched=len(tally.done) + tally.skipped.total(),
            done=len(tally.done),
            skipped=tally.reasons,
            jobs=tally.done,
            has_more=cursor is not None,
            next=cursor,
        )

    async def _cancel(self, tally: _Tally, records: Sequence[JobRecord], *, is_dry: bool) -> None:
        wanted = [record.id for record in records if not record.status.is_final]
        tally.skipped["already_final"] += len(records) - len(wanted)
        replies = [True] * len(wanted) if is_dry else await self._store.cancel_all(wanted)
        for job, is_canceled in zip(wanted, replies, strict=True):
            if is_canceled:
                tally.done.append(BulkJob(id=job))
            else:
                tally.skipped["not_found" if is_canceled is None else "already_final"] += 1

    async def _retry(self, tally: _Tally, records: Sequence[JobRecord], origin: RequestFacts, *, is_dry: bool) -> int:
        """Retry jobs until the time is up or the service is busy; return how many were looked at, at least one."""
        until = time.monotonic() + STEP_S
        known = await self._store.retryable(records)
        for looked, (record, (is_retried, has_items)) in enumerate(zip(records, known, strict=True)):
            if looked and time.monotonic() >= until:
                return looked
            if record.file is not None:
                has_items = await asyncio.to_thread(self._files.exists, record.file, record.parts)
            elif record.input_url is not None:
                has_items = True
            counts = record.describe().counts
            reason = reason_against_retry(
                record.status, counts, lasting=record.lasting, is_retried=is_retried, has_items=has_items
            )
            if reason is not None:
                tally.skipped[reason] += 1
            elif is_dry:
                tally.done.append(BulkJob(id=record.id))
            else:
                try:
                    made = await retry(self._submitter, self._store, self._settings, record, origin)
                except (Overloaded, Unavailable):
                    if not looked:
                        raise
                    return looked
                except CorelaneError as error:
                    tally.skip(error)
                else:
                    tally.done.append(BulkJob(id=record.id, retry=made.record.id))
        return len(records)


def reason_against_retry(
    status: JobStatus, counts: Counts, *, lasting: int, is_retried: bool, has_items: bool
) -> str | None:
    """Return why a job cannot be retried, judged without reading its items; ``lasting`` items would fail again."""
    if not status.is_final:
        return "not_final"
    if counts.succeeded == counts.total > 0:
        return "nothing_to_retry"
    if counts.succeeded + lasting >= counts.total > 0:
        return "fails_again"
    if is_retried:
        return "already_retried"
    return None if has_items else "items_lost"
