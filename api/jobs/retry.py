"""Retrying a job: what was not answered becomes a job of its own, once."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence

from fastapi import Response

from api.deps import Parts
from api.jobs.ndjson import new_file
from api.jobs.submit import Making, only_once, take_in, take_in_upload
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item, Job, JobHead, Webhook
from corelane.errors import NotFinal, NothingToRetry
from corelane.store.jobs.idempotency import by_retry
from corelane.store.jobs.payloads import Row
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.retries import copy_lines, items_lost
from corelane.store.jobs.store import Upload


async def retry(parts: Parts, record: JobRecord, response: Response, wait: float | None) -> Job:
    """The job that asks again for what this one left unanswered; the same one however often it is asked for.

    Raises NotFinal, NothingToRetry, and ItemsLost if an item is not there any more.
    """
    if not record.status.is_final:
        raise NotFinal(f"{record.id} is {record.status}: wait until it is final, or cancel it")
    making = Making(by_retry(record.id), retry_of=record.id, asked=record.asked or None)

    async def submit() -> Job:
        indexes = array("Q")
        async for part in parts.store.unanswered(record):
            indexes.extend(part)
        if not indexes:
            raise NothingToRetry(f"every item of {record.id} was answered")
        job_id, contexts = new_job_id(), await parts.store.contexts(record.id)
        if record.file is None:
            rows = await parts.store.rows(record, indexes)
            head = await head_of(parts, record, used(contexts, rows))
            items = [item_of(row) for row in rows]
            return await take_in(parts, job_id, head, record.owner, response, wait, items=items, making=making)
        head = await head_of(parts, record, contexts)
        upload = await copy_file(parts, record, indexes, job_id)
        return await take_in_upload(parts, job_id, head, record.owner, response, wait, upload, making)

    return await only_once(parts, making.once, response, wait, submit)


async def head_of(parts: Parts, record: JobRecord, contexts: Mapping[int, str]) -> JobHead:
    """A job's head as it was asked; its version again if that still takes jobs, else what was asked for."""
    same = (await parts.store.admit(record.version)).version is not None
    keep_s, expires_ms = record.keep_s, record.expires_ms
    return JobHead(
        contexts={str(number): text for number, text in contexts.items()},
        model=record.version if same or not record.asked else record.asked,
        options=record.options,
        priority=record.priority,
        expires_in_s=None if expires_ms is None else (expires_ms - record.created_ms) / 1000,
        metadata=record.metadata,
        labels=record.labels,
        keep_s=None if keep_s is None else min(keep_s, parts.settings.results_ttl_s),
        webhook=webhook_of(record),
    )


def used(contexts: Mapping[int, str], rows: Sequence[Row]) -> dict[int, str]:
    """Those of the contexts that some items share."""
    numbers = {row[2] for row in rows if isinstance(row[2], int)}
    return {number: text for number, text in contexts.items() if number in numbers}


def item_of(row: Row) -> Item:
    """An item as it was asked, less what its shared context was called."""
    item_id, question, context = row
    if isinstance(context, int):
        return Item(id=item_id, question=question, context_id=str(context))
    return Item(id=item_id, question=question, context=context)


async def copy_file(parts: Parts, record: JobRecord, indexes: Sequence[int], job_id: str) -> Upload:
    """The file of a job's unanswered items, for the job that asks them again; raises ItemsLost or StoreFull."""
    source = parts.settings.files_root / (record.file or "")
    with new_file(parts.settings, job_id) as target:
        try:
            items, tokens = await asyncio.to_thread(copy_lines, source, target, indexes)
        except (FileNotFoundError, EOFError):
            raise items_lost(record, len(indexes)) from None
    return Upload(target.name, items, tokens, record.results_window)


def webhook_of(record: JobRecord) -> Webhook | None:
    """The webhook that a job was given."""
    if record.webhook_url is None:
        return None
    events = record.webhook_events
    given = {"url": record.webhook_url} | ({"events": events.split(",")} if events else {})
    return Webhook.model_validate(given)
