"""The batch loop: carries batches on from step to step, one holder of the turn at a time, in the keeper.

Every step may be repeated: a keeper that dies anywhere is followed by another, who goes on from what stands in the
store. A batch whose storage fails waits and harms no other. Files whose time is over are deleted here, too.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from uuid import uuid4

from corelane.domain.batches import BatchError, BatchStatus, RequestCounts
from corelane.domain.ids import id_time_ms, is_id
from corelane.domain.jobs import JobStatus
from corelane.errors import CorelaneError, NotFound, NotReady, StorageFailed, StoreUnavailable
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.batches import BatchRecord, BatchStore
from corelane.store.file_storage import open_storage
from corelane.store.files import FileStore
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore
from corelane.store.link.aio import AsyncLink
from corelane.store.link.surface import VersionClosed
from workers.batches.context import Desk, TurnLost
from workers.batches.input import InputRefused, read_input, submit_groups
from workers.batches.output import conclude

log = get_logger(__name__)

#: One round goes on for so long at most, so that files are tidied now and then, in seconds.
ROUND_S = 60

#: Pause while nothing has come further, in seconds.
IDLE_PAUSE_S = 0.2

#: A batch that could not go on is tried again after this, in seconds; one that breaks what it touches, so many times.
RETRY_S, MAX_FAILURES = 5.0, 3

#: The results of finished jobs are held for open batches this often, in seconds; below the least time they are kept.
HOLD_S = 15.0

#: Storage is looked through for files that nobody knows this often, and they are left alone for so long, in seconds.
TIDY_S = STRAY_AGE_S = 24 * 3600


def carry_on(settings: Settings, bell: str, should_stop: Callable[[], bool], name: str = "") -> int:
    """Carry batches on until none is open; the steps taken. Raises Unavailable if Redis is away.

    ``name`` is told apart from every other holder's (made up if not given): one that comes back after an error goes on
    with its turn.
    """
    return asyncio.run(_carry_on(settings, bell, should_stop, name or uuid4().hex))


async def _carry_on(settings: Settings, bell: str, should_stop: Callable[[], bool], name: str) -> int:
    link = AsyncLink(settings.redis_url)
    jobs, storage = JobStore(link, settings, bell), open_storage(settings.files_url, settings.files_root)
    desk = Desk(name, settings, jobs, Fleet(link), BatchStore(link), FileStore(link), storage)
    try:
        return await Rounds(desk).run(should_stop)
    finally:
        await link.close()


class Rounds:
    """Rounds over all open batches."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        #: When a batch may be tried again, and how often it broke down, by its id.
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    async def run(self, should_stop: Callable[[], bool]) -> int:
        """Rounds until nothing is open, the time is over, or another has the turn."""
        desk, steps, held_s = self._desk, 0, float("-inf")
        deadline = time.monotonic() + ROUND_S
        try:
            if await desk.batches.take_turn(desk.name):
                await self._clean()
            while not should_stop() and time.monotonic() < deadline and await desk.batches.take_turn(desk.name):
                desk.renewed_s = time.monotonic()
                records = await desk.batches.open_batches()
                if not records:
                    break
                if time.monotonic() - held_s > HOLD_S:
                    await self._hold(records)
                    held_s = time.monotonic()
                moved = sum([await self._step(record) for record in records])
                steps += moved
                if not moved:
                    await asyncio.sleep(IDLE_PAUSE_S)
        except TurnLost as error:
            log.info("batches_left_to_another", detail=error.detail)
        await desk.batches.end_turn(desk.name)
        return steps

    async def _hold(self, records: Sequence[BatchRecord]) -> None:
        jobs = [group.job for record in records for group in record.groups if group.refused is None]
        await self._desk.batches.hold_results(jobs, self._desk.settings.results_ttl_s)

    async def _step(self, record: BatchRecord) -> bool:
        """One step of a batch; whether it came further."""
        if time.monotonic() < self._not_before.get(record.id, 0.0):
            return False
        try:
            return await step(self._desk, record)
        except (StoreUnavailable, TurnLost):
            raise
        except NotReady:
            self._not_before[record.id] = time.monotonic() + IDLE_PAUSE_S * 5
        except (CorelaneError, OSError) as error:
            log.warning("batch_waits", batch_id=record.id, detail=str(error))
            self._not_before[record.id] = time.monotonic() + RETRY_S
        except Exception:
            log.exception("batch_broke_down", batch_id=record.id)
            self._not_before[record.id] = time.monotonic() + RETRY_S
            self._failures[record.id] = self._failures.get(record.id, 0) + 1
            if self._failures[record.id] >= MAX_FAILURES:
                sentence = "something broke that should not; the service's log says what"
                errors = [BatchError(code="internal", message=sentence).model_dump()]
                counts = (record.counts or RequestCounts()).model_dump()
                fields = {"errors": errors, "counts": counts}
                ttl_s = self._desk.settings.files_ttl_s
                return await self._desk.batches.step(record, self._desk.name, "failed", fields, ttl_s=ttl_s)
        return False

    async def _clean(self) -> None:
        """Delete files whose time is over, and now and then those that nobody knows."""
        desk = self._desk
        try:
            while ids := await desk.files.retire():
                await self._delete(ids)
                await desk.stay()
            if await desk.batches.is_time_to_tidy(TIDY_S):
                await tidy(desk)
        except (StorageFailed, OSError) as error:
            log.warning("files_not_tidied", detail=str(error))

    async def _delete(self, ids: Sequence[str]) -> None:
        done, failed = [], []
        for each in ids:
            try:
                if each.startswith("file_"):
                    self._desk.storage.delete(each)
                done.append(each)
            except CorelaneError as error:
                log.warning("file_not_deleted", file_id=each, detail=error.detail)
                failed.append(each)
        await self._desk.files.retired(done, failed)


async def step(desk: Desk, record: BatchRecord) -> bool:
    """Take the next step of a batch, if it can be taken; whether it was."""
    if record.status == "cancelling":
        return await _end_canceled(desk, record)
    if record.status == "validating":
        return await _validate(desk, record)
    jobs = [await desk.jobs.get(group.job) for group in record.groups if group.refused is None]
    if any(job is not None and not job.status.is_final for job in jobs):
        return False
    if record.status == "in_progress":
        return await desk.batches.step(record, desk.name, "finalizing", {})
    is_expired = any(job is not None and job.status is JobStatus.EXPIRED for job in jobs)
    return await end(desk, record, "expired" if is_expired else "completed")


async def _validate(desk: Desk, record: BatchRecord) -> bool:
    """Read the input; then, as a step of its own, submit what it asks."""
    now_ms = await desk.batches.now_ms()
    if now_ms >= record.expires_ms:
        return await end(desk, record, "expired")
    if record.lines is None:
        try:
            found = await read_input(desk, record)
        except InputRefused as refused:
            return await end(desk, replace(record, plan=refused.plan), "failed", refused.errors)
        except NotFound:
            sentence = f"the file {record.input_file} was deleted before it was read"
            return await end(desk, record, "failed", [BatchError(code="file_not_found", message=sentence)])
        return await desk.batches.step(record, desk.name, "validating", found)
    try:
        groups_now = await submit_groups(desk, record, now_ms)
    except VersionClosed:
        return False
    refused_all = [group.refused for group in groups_now if group.refused is not None]
    if len(refused_all) == len(groups_now):
        errors = [BatchError(code=code, message=message) for code, message in refused_all]
        return await end(desk, replace(record, groups=groups_now), "failed", errors)
    fields = {"groups": [asdict(group) for group in groups_now]}
    return await desk.batches.step(record, desk.name, "in_progress", fields)


async def _end_canceled(desk: Desk, record: BatchRecord) -> bool:
    for group in record.groups:
        await desk.jobs.cancel(group.job)
    return await end(desk, record, "cancelled")


async def end(desk: Desk, record: BatchRecord, to: BatchStatus, errors: Sequence[BatchError] = ()) -> bool:
    """Write a batch's files and end it, and tell of it; whether it was ended here."""
    if record.plan is not None and not (desk.settings.files_root / record.plan).exists():
        sentence = f"{desk.settings.files_root} lost this batch's plan; what was answered stands in its jobs' results"
        record, to = replace(record, plan=None, groups=()), "failed"
        errors = [BatchError(code="items_lost", message=sentence)]
    ended = await conclude(desk, record, to, errors)
    if ended:
        await tell_end(desk, record.id)
    return ended


async def tell_end(desk: Desk, batch: str) -> None:
    """Log a batch's end. What must be told exactly once belongs into the function ``step_batch`` of the library."""
    record = await desk.batches.get(batch)
    if record is not None and record.counts is not None:
        counts = record.counts.model_dump()
        log.info("batch_ended", batch_id=batch, status=record.status, owner=record.owner, **counts)


async def tidy(desk: Desk) -> None:
    """Delete old files that nobody knows: of uploads and keepers that died on the way."""
    before_ms = await desk.batches.now_ms() - STRAY_AGE_S * 1000
    old = [name for name in desk.storage.names() if is_id("file", name) and id_time_ms(name) < before_ms]
    for file, is_known in zip(old, await desk.files.known(old), strict=True):
        if not is_known:
            log.info("stray_file_deleted", file_id=file)
            desk.storage.delete(file)
        await desk.stay()
    open_now = {record.id for record in await desk.batches.open_batches()}
    for path in desk.settings.files_root.glob("batch_*"):
        batch = path.name.partition(".")[0]
        if is_id("batch", batch) and id_time_ms(batch) < before_ms and batch not in open_now:
            path.unlink(missing_ok=True)
