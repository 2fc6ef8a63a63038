"""The batch runner: takes open batches from step to step, in the keeper that holds the lease.

Every step may be repeated: if a keeper dies, another continues from the state in the store. A batch whose storage fails
waits, and the others continue. Expired files are deleted here, too.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from uuid import uuid4

from corelane.domain.batches import BatchError, BatchStatus, RequestCounts
from corelane.domain.ids import cell_of, id_time_ms, is_id
from corelane.domain.jobs import JobStatus
from corelane.errors import CorelaneError, NotFound, NotReady, StorageFailed, StoreUnavailable
from corelane.log import get_logger
from corelane.plugins.files.batches.input import InputRefused, read_input, submit_groups
from corelane.plugins.files.batches.output import conclude
from corelane.plugins.files.batches.tools import PLANS, BatchTools, LeaseLost
from corelane.plugins.files.store.batches import BatchRecord, BatchStore
from corelane.plugins.files.store.files import FileStore
from corelane.settings import Settings
from corelane.store.file_storage import Storage, open_storage
from corelane.store.fleet import Fleet
from corelane.store.item_files import ELSEWHERE
from corelane.store.jobs.store import JobStore
from corelane.store.link.link import AsyncLink, VersionClosed
from corelane.submitting.submitter import Submitter
from corelane.tracing import Tracer

log = get_logger(__name__)

#: A run ends after this time, in seconds, so that files are cleaned up between runs.
RUN_S = 60

#: Seconds between looks for more open batches; the least pause of an owner whose batches can take no step, and its
#: ratio to the time of looking at them, for each owner.
LOOK_S, IDLE_PAUSE_S, IDLE_SHARE = 0.2, 0.05, 5

#: Steps taken at the same time, each of another owner; and of an owner before its batches are looked at again.
STEPS_AT_ONCE, MOST_STEPS = 8, 10

#: Seconds until a batch that could not continue is tried again; and the unforeseen errors after which it fails.
RETRY_S, MAX_FAILURES = 5.0, 3

#: Open batches extend the life of their final jobs' results this often, in seconds; each time for longer than that.
HOLD_S = 15.0

#: Storage is searched for unknown files this often, and only files older than this are deleted, in seconds.
TIDY_S = STRAY_AGE_S = 24 * 3600


def run_batches(
    settings: Settings,
    bell: str,
    should_stop: Callable[[], bool],
    name: str = "",
    tracer: Tracer | None = None,
    feed: Callable[[], object] = bool,
) -> int:
    """Run batches until none is open; return the number of steps. Raise Unavailable if Redis is unreachable.

    ``name`` is unique among the holders of the lease (generated if not given). A holder that returns after an error
    still has its lease. ``feed`` is called when a job was submitted.
    """

    async def run() -> int:
        link = AsyncLink(settings.redis_url)
        jobs, storage = JobStore(link, settings, bell), open_storage(settings.files_url, settings.files_root)
        submitter = Submitter(jobs, Fleet(link), settings, tracer)
        holder = name or uuid4().hex
        tools = BatchTools(holder, settings, jobs, submitter, BatchStore(link), FileStore(link), storage, feed)
        try:
            return await BatchRunner(tools).run(should_stop)
        finally:
            await link.close()

    return asyncio.run(run())


class BatchRunner:
    """Takes all open batches from step to step: those of each owner in a task, so none waits behind another's."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        #: When a batch may be tried again, and how many unforeseen errors it had, by its id.
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._room = asyncio.Semaphore(STEPS_AT_ONCE)
        #: The ids of open batches by their owners, and how many steps were taken.
        self._open: dict[str, list[str]] = {}
        self._steps = 0

    async def run(self, should_stop: Callable[[], bool]) -> int:
        """Take steps until no batch is open, the time is over, or the lease is lost; return how many."""
        tools, held_s = self._tools, float("-inf")
        deadline = time.monotonic() + RUN_S
        serving: dict[str, asyncio.Task[None]] = {}
        try:
            if await tools.batches.take_turn(tools.name):
                await self._clean()
            while not should_stop() and time.monotonic() < deadline and await tools.batches.take_turn(tools.name):
                began_s = tools.renewed_s = time.monotonic()
                self._open = await tools.batches.open_by_owner()
                if not self._open:
                    break
                if began_s - held_s > HOLD_S:
                    records = await tools.batches.open_batches()
                    jobs = [group.job for record in records for group in record.groups if group.refused is None]
                    await tools.batches.hold_results(jobs, tools.settings.results_ttl_s)
                    held_s = began_s
                serving |= {owner: asyncio.create_task(self._serve(owner)) for owner in self._open.keys() - serving}
                await asyncio.wait(serving.values(), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                for owner in [owner for owner, task in serving.items() if task.done()]:
                    serving.pop(owner).result()
        except LeaseLost as error:
            log.info("batches_left_to_another", detail=error.detail)
        finally:
            # A step that is cut off may have ended its batch, so each is waited for.
            self._open = {}
            await asyncio.gather(*serving.values(), return_exceptions=True)
        await tools.batches.end_turn(tools.name)
        return self._steps

    async def _serve(self, owner: str) -> None:
        """Take steps of an owner's open batches until there are none; those that have jobs go first."""
        while batches := self._open.get(owner):
            began_s, moved = time.monotonic(), 0
            records = await self._tools.batches.get_all(batches)
            for record in sorted(records, key=lambda record: record.status == "validating"):
                if owner not in self._open or moved > MOST_STEPS + len(batches) // MOST_STEPS:
                    break
                async with self._room:
                    moved += not record.is_final and await self._step(record)
            self._steps += moved
            if not moved:
                await asyncio.sleep(max(IDLE_PAUSE_S, IDLE_SHARE * len(self._open) * (time.monotonic() - began_s)))

    async def _step(self, record: BatchRecord) -> bool:
        """Take one step of a batch; return whether it advanced."""
        if time.monotonic() < self._not_before.get(record.id, 0.0):
            return False
        try:
            return await step(self._tools, record)
        except (StoreUnavailable, LeaseLost):
            raise
        except NotReady:
            self._not_before[record.id] = time.monotonic() + LOOK_S * 5
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
                ttl_s = self._tools.limits.files_ttl_s
                return await self._tools.batches.step(record, self._tools.name, "failed", fields, ttl_s=ttl_s)
        return False

    async def _clean(self) -> None:
        """Delete expired files and, once a day, unknown ones."""
        tools = self._tools
        try:
            while ids := await tools.files.retire():
                await self._delete(ids)
                await tools.renew_lease()
            if await tools.batches.is_time_to_tidy(TIDY_S):
                await tidy(tools)
        except (StorageFailed, OSError) as error:
            log.warning("files_not_tidied", detail=str(error))

    async def _delete(self, ids: Sequence[str]) -> None:
        done, failed = [], []
        for each in ids:
            try:
                if each.startswith("file_"):
                    self._tools.storage.delete(each)
                done.append(each)
            except CorelaneError as error:
                log.warning("file_not_deleted", file_id=each, detail=error.detail)
                failed.append(each)
        await self._tools.files.retired(done, failed)


async def step(tools: BatchTools, record: BatchRecord) -> bool:
    """Take the next step of a batch, if possible; return whether it was taken."""
    if record.status == "cancelling":
        for group in record.groups:
            await tools.jobs.cancel(group.job)
        return await end(tools, record, "cancelled")
    if record.status == "validating":
        return await _validate(tools, record)
    if not all(status.is_final for status in record.statuses):
        return False
    if record.status == "in_progress":
        return await tools.batches.step(record, tools.name, "finalizing", {})
    return await end(tools, record, "expired" if JobStatus.EXPIRED in record.statuses else "completed")


async def _validate(tools: BatchTools, record: BatchRecord) -> bool:
    """Read the input, if that was not done before, and submit its groups."""
    now_ms = await tools.batches.now_ms()
    if now_ms >= record.expires_ms:
        return await end(tools, record, "expired")
    if record.lines is None:
        try:
            found = await read_input(tools, record)
        except InputRefused as refused:
            return await end(tools, replace(record, plan=refused.plan), "failed", refused.errors)
        except NotFound:
            sentence = f"the file {record.input_file} was deleted before it was read"
            return await end(tools, record, "failed", [BatchError(code="file_not_found", message=sentence)])
        if not await tools.batches.step(record, tools.name, "validating", found):
            return False
        [record] = await tools.batches.get_all([record.id])
        return await step(tools, record)
    try:
        groups_now = await submit_groups(tools, record, now_ms)
    except VersionClosed:
        return False
    refused_all = [group.refused for group in groups_now if group.refused is not None]
    if len(refused_all) == len(groups_now):
        errors = [BatchError(code=code, message=message) for code, message in refused_all]
        return await end(tools, replace(record, groups=groups_now), "failed", errors)
    fields = {"groups": [asdict(group) for group in groups_now]}
    return await tools.batches.step(record, tools.name, "in_progress", fields)


async def end(tools: BatchTools, record: BatchRecord, to: BatchStatus, errors: Sequence[BatchError] = ()) -> bool:
    """Write a batch's files, end it and log it; return whether it was ended here."""
    if not await asyncio.to_thread(tools.has_plan, record):
        sentence = "this batch's plan was lost; what was answered stands in its jobs' results"
        record, to = replace(record, plan=None, groups=()), "failed"
        errors = [BatchError(code="items_lost", message=sentence)]
    if not await conclude(tools, record, to, errors):
        return False
    # A report that must happen exactly once belongs in the Lua function ``step_batch``.
    if (ended := await tools.batches.get(record.id)) is not None and ended.counts is not None:
        counts = ended.counts.model_dump()
        log.info("batch_ended", batch_id=ended.id, status=ended.status, owner=ended.owner, **counts)
    return True


async def tidy(tools: BatchTools) -> None:
    """Delete old unknown files, items and plans, which broken uploads and dead keepers left behind."""
    records = await tools.batches.open_batches()
    kept = {group.job for record in records for group in record.groups}
    plans = {record.plan for record in records}
    before_ms = await tools.batches.now_ms() - STRAY_AGE_S * 1000
    far, near = tools.storage, tools.item_files.near
    files = [file for file, _ in old_names(tools, far, "", "file", before_ms)]
    are_known = await tools.files.known(files)
    strays = [(far, file) for file, is_known in zip(files, are_known, strict=True) if not is_known]
    for storage, folder in ((far, ELSEWHERE), (near, "")):
        for name, job in old_names(tools, storage, folder, "job", before_ms):
            if job not in kept and await tools.jobs.get(job) is None:
                strays.append((storage, name))
            await tools.renew_lease()
    strays += [(far, name) for name, _ in old_names(tools, far, PLANS, "batch", before_ms) if name not in plans]
    for storage, name in strays:
        log.info("stray_file_deleted", file=name)
        storage.delete(name)
        await tools.renew_lease()


def old_names(tools: BatchTools, storage: Storage, folder: str, kind: str, before_ms: int) -> Iterator[tuple[str, str]]:
    """Yield a folder's old files with the ids in their names; only of this cell, as services may share a storage."""
    for name in storage.names(folder.rstrip("/")):
        named = name.partition(".")[0]
        if is_id(kind, named) and cell_of(named) == tools.settings.cell and id_time_ms(named) < before_ms:
            yield f"{folder}{name}", named
