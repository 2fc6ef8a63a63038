"""Retries: the unanswered items of a final job become a job of their own, once."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corelane.domain.ids import new_job_id
from corelane.domain.jobs import JobHead, Webhook
from corelane.domain.request_facts import RequestFacts
from corelane.errors import NotFinal, NotFound, NothingToRetry, fails_again
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles, NewItems
from corelane.store.jobs.idempotency import by_retry
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.retries import copy_lines, items_lost
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import ItemFile, Submission
from corelane.submitting.ndjson import submit_file
from corelane.submitting.submitter import Submitted, Submitter
from corelane.tasks.forms import forms
from corelane.tasks.registry import task_named


async def retry(
    submitter: Submitter, store: JobStore, settings: Settings, record: JobRecord, request: RequestFacts
) -> Submitted:
    """Make the one retry of a job: a job of its unanswered items, except those that would fail again.

    Raise NotFinal, NothingToRetry, or ItemsLost if an item is gone.
    """
    if not record.status.is_final:
        raise NotFinal(f"{record.id} is {record.status}: wait until it is final, or cancel it")
    once = by_retry(record.id)
    if (made := await submitter.replay(once)) is not None:
        return made
    is_unread = record.input_url is not None and record.file is None
    indexes = array("Q")
    async for part in store.unanswered(record):
        indexes.extend(part)
    if not indexes and not is_unread:
        raise nothing_to_retry(record)
    texts = await store.shared_texts(record.id)
    rows = [] if record.file or is_unread else await store.rows(record, indexes)
    if not record.file:
        used = {row[2] for row in rows if isinstance(row[2], int)}
        texts = {number: text for number, text in texts.items() if number in used}
    task = task_named(record.options.task)
    takes_jobs = (await store.admit(record.version)).version is not None
    submission = Submission(
        head_of(record, record.version if takes_jobs else record.asked, texts, settings.results_ttl_s),
        record.owner,
        [task.item_of(row) for row in rows],
        id=new_job_id(cell=settings.cell),
        retry_of=record.id,
        asked=record.asked,
        once=once,
        request=request,
        input_url=record.input_url if is_unread else None,
    )
    if not record.file:
        return await submitter.submit(submission)
    job, file = await copy_file(settings, record, indexes)
    return await submit_file(submitter, settings, replace(submission, id=job, file=file))


def head_of(record: JobRecord, model: str, texts: Mapping[int, str], most_keep_s: int) -> JobHead:
    """Return a job's head as it was submitted, for ``model`` or, if that is empty, for the same version.

    The head has no expiry: that of the first submission may have been too short.
    """
    task = task_named(record.options.task)
    return forms(task).head(
        **(task.sharing({str(number): text for number, text in texts.items()}) if texts else {}),
        model=model or record.version,
        options=record.options,
        priority=record.priority,
        metadata=record.metadata,
        keep_s=None if record.keep_s is None else min(record.keep_s, most_keep_s),
        webhook=webhook_of(record),
        results_window=record.results_window,
        invalid_items=record.invalid_items,
    )


async def copy_file(settings: Settings, record: JobRecord, indexes: Sequence[int]) -> tuple[str, ItemFile]:
    """Copy a job's unanswered items into a new job's file; return that job's id, and the file.

    Raise ItemsLost, StoreFull, or NothingToRetry if the failed lines are no valid items.
    """
    files = ItemFiles(settings)

    def copy(new: NewItems) -> tuple[int, int, str, str]:
        items, tokens = copy_lines(files.lines(record.file or "", record.parts), new.write, indexes)
        if not items:
            raise nothing_to_retry(record)
        return items, tokens, *new.finish()

    with files.writing() as new:
        try:
            items, tokens, job, name = await asyncio.to_thread(copy, new)
        except (NotFound, EOFError):
            raise items_lost(record, len(indexes)) from None
    return job, ItemFile(name, items, tokens)


def nothing_to_retry(record: JobRecord) -> NothingToRetry:
    """Return the error for a job of which no item would have another outcome on a retry."""
    if record.succeeded == record.total:
        return NothingToRetry(f"every item of {record.id} was answered")
    codes = ", ".join(code for code in record.failures if fails_again(code))
    why = f" ({codes})" if codes else ""
    return NothingToRetry(
        f"what failed of {record.id} would fail again{why}: change these items, and send them as a new job"
    )


def webhook_of(record: JobRecord) -> Webhook | None:
    """Return the webhook that a job was submitted with."""
    if record.webhook_url is None:
        return None
    events = record.webhook_events
    given = {"url": record.webhook_url} | ({"events": events.split(",")} if events else {})
    return Webhook.model_validate(given)
