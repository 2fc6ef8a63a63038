"""The job store: admit, submit, read, list, cancel and delete jobs; read and drop results.

A call either succeeds, or raises StoreUnavailable or StoreFull without a visible effect. Payloads of a job that was not
submitted expire within a minute.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any

import orjson

from corelane.domain.aliases import choose
from corelane.domain.dispatch import MAX_SLICE_ITEMS, PUBLIC, Row, decode_slice
from corelane.domain.job_filter import ALL_OWNERS, JobFilter
from corelane.domain.jobs import Item
from corelane.domain.pauses import Pauses
from corelane.errors import NotFound
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import read_drain_rate
from corelane.store.item_files import ItemFiles, decode_line
from corelane.store.jobs.idempotency import Holder, by_name, find_holder
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import drop_final, drop_results, read_results
from corelane.store.jobs.retries import items_lost, unanswered
from corelane.store.jobs.search import JobPage, count_jobs, find_jobs, owners_of_jobs, read_records
from corelane.store.jobs.submission import Admission, Assumed, Submission
from corelane.store.jobs.writer import Cut, JobWriter
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink, pairs, texts
from corelane.store.link.replicas import ReplicaGate
from corelane.tasks.registry import task_named


class JobStore:
    """The jobs in Redis, and the state of the fleet, for the processes that submit and read jobs."""

    def __init__(self, link: CommonLink, settings: Settings, bell: str, gate: ReplicaGate | None = None) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``).

        With ``gate``, a job is reported as accepted or ended only once replicas hold what was written.
        """
        self._link = link
        self._gate = gate
        self._settings = settings
        self._writer = JobWriter(link, settings, bell)

    @property
    def link(self) -> CommonLink:
        """Return the link to Redis, for a plugin's own records."""
        return self._link

    async def admit(self, model: str, key: str = "", owner: str = PUBLIC) -> Admission:
        """Read the state of the fleet for an owner's job; the version is None if the model is unknown.

        If the model is an alias of several versions, ``key`` chooses one.
        """
        found, outstanding, own, paused = await self._link.run("admit", model=model, owner=owner)
        versions = {version.decode(): (weight, held, idle) for version, weight, held, idle in found}
        version = next(iter(versions), None)
        if len(versions) > 1:
            version = choose({name: float(weight) for name, (weight, *_) in versions.items()}, key)
        _, held, idle = versions[version] if version is not None else (b"1", 0, 0)
        return Admission(
            version,
            outstanding=outstanding,
            own=own,
            is_held=bool(held),
            idle=idle,
            is_alone=len(versions) == 1,
            pause=Pauses.decode(texts(paused)).against(version or "", owner) if paused else None,
        )

    async def drain_rate(self) -> float:
        """Return how many tokens a second the cores drain."""
        return await read_drain_rate(self._link)

    async def submit(
        self, submission: Submission, version: str, slices: Sequence[Cut], assumed: Assumed | None = None
    ) -> JobRecord:
        """Write job, refs and bells in one step: see ``JobWriter``. Idempotent by the job's id, and by its ``once``.

        Raise VersionClosed, with nothing written, if the version stopped taking jobs since it was admitted, or what is
        ``assumed`` does not hold; Held if another job holds its ``once``. Raise NotReplicated if the job is written,
        but replicas do not hold it.
        """
        record = await self._writer.write(submission, version, slices, assumed)
        await self.confirm(submission.id)
        return record

    async def get(self, job: str, ahead: int = 0) -> JobRecord | None:
        """Return a job, or None if there is none.

        Up to ``ahead`` results of its first items are read in the same trip, for a later call of ``results``.
        """
        commands: list[Command] = [("HGETALL", keys.job % job)]
        if ahead:
            commands.append(("HMGET", keys.results % job, *range(ahead)))
        raw, *outs = await self._link.many(commands)
        record = JobRecord.parse(job, dict(pairs(raw)), outs[0] if outs else ()) if raw else None
        if self._gate is not None and record is not None and record.finished_ms is not None:
            await self._gate.confirm(keys.job(job), "finished_ms")
        return record

    async def read_notified(self, job: str, notified: str) -> JobRecord | None:
        """Return a final job from the message that was published at its end; None if it has to be read from Redis."""
        try:
            fields, _, out = notified.partition("\n")
            raw = {name.encode(): value.encode() for name, value in pairs(orjson.loads(fields))}
        except ValueError:  # It holds a text that is not UTF-8.
            return None
        if self._gate is not None:
            await self._gate.confirm(keys.job(job), "finished_ms")
        return JobRecord.parse(job, raw, [out.encode(errors="surrogateescape") if out else None])

    async def confirm(self, job: str) -> None:
        """Wait until replicas hold a job, if that is required; raise NotReplicated after a timeout."""
        if self._gate is not None:
            await self._gate.confirm(keys.job(job), "status")

    async def results(self, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
        """Return results in order from item ``after`` up to the first item that is not final yet."""
        return await read_results(self._link, record, after, limit)

    async def drop(self, record: JobRecord, before: int) -> int:
        """Drop results before an item, but not past the first unanswered one; return the first index kept."""
        return await drop_results(self._link, record, before)

    async def unread_inputs(self) -> int:
        """Return how many jobs wait for their input to be read."""
        return int(await self._link("ZCARD", keys.READING))

    async def drop_final(self, job: str) -> None:
        """Drop all results of a final job, after its batch has copied them; note which items a retry would ask for."""
        record = await self.get(job)
        if record is not None and record.status.is_final:
            await drop_final(self._link, record, unanswered(self._link, record), self._settings.results_ttl_s)

    async def page(self, owner: str, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        """Return a page of the jobs of an owner, or of ALL_OWNERS, that match a filter, newest first.

        ``after`` is the cursor: the id of the last job before this page. The filter's own ``owner`` is ignored.
        """
        return await find_jobs(self._link, owner, wanted, after, limit, self._settings.cell)

    async def records(self, jobs: Sequence[str]) -> list[JobRecord]:
        """Return those of the jobs that exist, in the given order."""
        return await read_records(self._link, jobs)

    async def tallies(self, owner: str) -> dict[str, int]:
        """Return the number of jobs of an owner, or of ALL_OWNERS, by status."""
        return await count_jobs(self._link, [owner] if owner != ALL_OWNERS else await owners_of_jobs(self._link))

    async def holder(self, key: str) -> Holder | None:
        """Return the holder of a ``Once``'s key, or None."""
        return await find_holder(self._link, key)

    async def named(self, owner: str, name: str) -> str | None:
        """Return the id of the job to which an owner gave this name, or None."""
        holder = await find_holder(self._link, by_name(owner, name, "").key)
        return None if holder is None else holder.subject

    async def signs_webhooks(self, owner: str) -> bool:
        """Return whether an owner has a webhook secret of its own."""
        return bool(await self._link("HEXISTS", keys.SECRETS, owner))

    def unanswered(self, record: JobRecord) -> AsyncIterator[list[int]]:
        """Yield the indexes of a final job's items that did not succeed but may on a retry, in order and in lists."""
        return unanswered(self._link, record)

    async def rows(self, record: JobRecord, indexes: Sequence[int]) -> list[Row]:
        """Return items of a job that has no file; raise ItemsLost if one is missing."""
        rows: dict[int, Row] = {}
        for first, payload in pairs(await self._link("HGETALL", keys.payloads(record.id))):
            rows |= enumerate(decode_slice(payload), int(first))
        if missing := sum(index not in rows for index in indexes):
            raise items_lost(record, missing)
        return [rows[index] for index in indexes]

    async def item(self, record: JobRecord, index: int) -> Item | None:
        """Return one item of a job as it was submitted, with its text, shared or not; None if it is not kept any more.

        A payload is deleted when its slice is answered without a failure. The file of a job sent as lines is deleted
        when the job succeeds.
        """
        row = await _from_payload(self._link, record.id, index)
        if row is None and record.file:
            row = await asyncio.to_thread(_from_file, ItemFiles(self._settings), record, index)
        if row is None:
            return None
        item_id, beside, text = row
        if not isinstance(text, str):
            found = await self._link("HGET", keys.shared_texts(record.id), text)
            if found is None:
                return None
            text = found.decode()
        return task_named(record.options.task).item_of((item_id, beside, text))

    async def shared_texts(self, job: str) -> dict[int, str]:
        """Return the texts that a job's items share, by number, in order."""
        found = pairs(await self._link("HGETALL", keys.shared_texts(job)))
        return {int(number): text.decode() for number, text in sorted(found, key=lambda pair: int(pair[0]))}

    async def is_gone(self, job: str, owner: str) -> bool:
        """Return whether an owner's job existed and has expired. This is known only for a while."""
        gone, listed = await self._link.many(
            [("GET", keys.gone(job)), ("ZSCORE", keys.owner_jobs(owner), job)],
        )
        return listed is not None or gone == owner.encode()

    async def delete(self, job: str) -> bool:
        """Delete a job; return whether there was one. An open job is canceled first."""
        return bool(await self._link.run("delete", job=job, ttl=self._settings.results_ttl_s))

    async def cancel(self, job: str) -> bool | None:
        """Return True if the job was open and is canceled now, False if it was final, None if there is none."""
        reply = await self._link.run("cancel", job=job, ttl=self._settings.results_ttl_s)
        return None if reply < 0 else bool(reply)


async def _from_payload(link: CommonLink, job: str, index: int) -> Row | None:
    """Find an item in its slice. The slice starts at most ``MAX_SLICE_ITEMS`` - 1 items before it."""
    begin = max(0, index - MAX_SLICE_ITEMS + 1)
    payloads = await link("HMGET", keys.payloads(job), *range(begin, index + 1))
    for first, payload in enumerate(payloads, begin):
        rows = decode_slice(payload) if payload is not None else []
        if index - first < len(rows):
            return rows[index - first]
    return None


def _from_file(files: ItemFiles, record: JobRecord, index: int) -> Row | None:
    """Read one line of a job's file; None if the line is no valid item, or the file is gone or on another host."""
    try:
        text = next(islice(files.lines(record.file or "", record.parts), index, None), None)
    except NotFound:
        return None
    if text is None:
        return None
    line = decode_line(text)
    return line.row if line.error is None else None
