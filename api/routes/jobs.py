"""Jobs: submit, look, wait, read and drop results, cancel."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Body, Header, Query, Response
from starlette.responses import StreamingResponse

from api.bodies import NDJSON, FastBodyRoute
from api.deps import Caller, JobId, Parts, PartsDep, Reader, Submitter, Wait
from api.errors import documented
from api.examples import JOB_REQUEST_EXAMPLES, LINES_SCHEMA
from corelane.aliases import DEFAULT_ALIAS
from corelane.errors import InvalidInput, NotCalibrated, NotFound, NotReady, TooLarge, UnknownModel, WebhookRefused
from corelane.jobs import Item, Job, JobHead, JobRequest, Result, ResultList, Webhook, new_job_id
from corelane.log import get_logger
from corelane.sizes import check_contexts, check_item
from corelane.store.admission import Admission
from corelane.store.connections import VersionClosed
from corelane.store.jobs import Submission, Upload
from corelane.store.records import JobRecord
from corelane.store.results import require_kept
from corelane.webhooks import check_address

log = get_logger(__name__)

router = APIRouter(
    prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 422, 503), route_class=FastBodyRoute
)

#: Results sent in one piece of an NDJSON stream.
STREAM_PAGE = 500

#: A stream that has caught up with its job looks for more this often, in seconds.
STREAM_LOOK_S = 0.5

#: A webhook's host name gets this long to resolve while its job is submitted, in seconds.
RESOLVE_S = 2.0


@router.post(
    "",
    status_code=202,
    responses={200: {"model": Job, "description": "Final within the time waited."}, **documented(400, 409, 413, 429)},
    openapi_extra={"requestBody": {"content": {NDJSON: {"schema": LINES_SCHEMA}}}},
)
async def submit_job(
    request: Annotated[JobRequest, Body(openapi_examples=JOB_REQUEST_EXAMPLES)],
    response: Response,
    parts: PartsDep,
    wait: Wait,
    caller: Submitter,
) -> Job:
    """Take in a job. It is kept before this answers: from then on it is answered, once, whatever dies."""
    items = request.items or []
    check_sizes(parts, items, request.contexts or {})
    return await take_in(parts, new_job_id(), request, caller.owner, response, wait, items=items)


async def take_in(
    parts: Parts,
    job_id: str,
    head: JobHead,
    owner: str,
    response: Response,
    wait: float | None,
    *,
    items: Sequence[Item] = (),
    upload: Upload | None = None,
) -> Job:
    """Admit a job and hand it in; once more if its version is closed in between, as when an alias moves."""

    async def attempt() -> Job:
        admission = await admit(parts, job_id, head, owner)
        submission = make_submission(job_id, admission, head, owner, items=items, upload=upload)
        return await hand_in(parts, submission, admission, response, wait)

    try:
        return await attempt()
    except VersionClosed:
        return await attempt()


async def admit(parts: Parts, job_id: str, head: JobHead, owner: str) -> Admission:
    """Look whether a job can be taken at all; raises WebhookRefused, UnknownModel, NotCalibrated, or NotReady before
    any worker has announced the default model.
    """
    if head.webhook is not None:
        await check_webhook(parts, head.webhook)
    key = job_id if head.sticky_key is None else f"{owner} {head.sticky_key}"
    admission = await parts.store.admit(head.model, key)
    if admission.version is not None:
        if head.options.min_precision is not None and not await parts.fleet.is_calibrated(admission.version):
            raise NotCalibrated(
                f"{admission.version} is not calibrated: leave `min_precision` out, or have its operator run "
                "`corelane calibrate`"
            )
        return admission
    if head.model == DEFAULT_ALIAS:
        raise NotReady("no worker has announced a model yet; try again when /readyz says ready")
    raise UnknownModel(
        f"there is no model {head.model[:100]!r}, or it is being unloaded; GET /v1/models lists what can be asked"
    )


def make_submission(
    job_id: str,
    admission: Admission,
    head: JobHead,
    owner: str,
    *,
    items: Sequence[Item] = (),
    upload: Upload | None = None,
) -> Submission:
    """A job as the store takes it."""
    return Submission(
        job_id,
        admission.version or "",
        head.options,
        metadata=head.metadata,
        webhook=head.webhook,
        priority=head.priority,
        expires_in_s=head.expires_in_s,
        refuse_if_late=head.refuse_if_late,
        owner=owner,
        contexts=head.contexts or {},
        items=items,
        upload=upload,
    )


async def hand_in(
    parts: Parts, submission: Submission, admission: Admission, response: Response, wait: float | None
) -> Job:
    """Have the store keep a job, wait for it if asked to, and say how it stands."""
    record: JobRecord | None
    keeping = keep_job(parts, submission, admission)
    if wait is None:
        record = await keeping
    else:
        record = await parts.completions.wait(submission.id, wait, keeping)
        response.headers["Preference-Applied"] = f"wait={wait:g}"
        response.headers["Vary"] = "Prefer"
    job = await describe(parts, record, submission.id)
    response.status_code = 200 if job.status.is_final else 202
    response.headers["Location"] = job.urls.self
    if not job.status.is_final:
        response.headers["Retry-After"] = "1"
    return job


async def keep_job(parts: Parts, submission: Submission, admission: Admission) -> JobRecord:
    """Have the store keep a job, and tell of it."""
    with parts.metrics.submit_seconds.time():
        record = await parts.store.submit(submission, admission)
    parts.metrics.jobs_submitted.inc()
    parts.metrics.items_submitted.inc(record.total)
    log.info("job_submitted", job_id=record.id, items=record.total, version=record.version, owner=submission.owner)
    return record


@router.get("/{job_id}")
async def get_job(job_id: JobId, response: Response, parts: PartsDep, wait: Wait, caller: Reader) -> Job:
    """A job as it stands, or once it is final if asked to wait. Small jobs then carry their results."""
    record = await require(parts, job_id, caller, parts.settings.inline_results)
    if wait is not None and not record.status.is_final:
        waited = await parts.completions.wait(job_id, wait)
        if waited is None:
            raise no_such_job(job_id)
        record = waited
    job = await describe(parts, record, job_id)
    if not job.status.is_final:
        response.headers["Retry-After"] = "1"
    return job


@router.get(
    "/{job_id}/results", responses={200: {"content": {NDJSON: {}}}, **documented(410)}, response_model=ResultList
)
async def list_results(
    job_id: JobId,
    parts: PartsDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=20, description="Cursor of an earlier page's `next`.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most results in a page.")] = 100,
    accept: Annotated[str, Header(description=f"`{NDJSON}` streams all results, one a line.")] = "application/json",
) -> Response | ResultList:
    """Results in item order, up to the first item not answered yet; as NDJSON the stream follows the job to its end."""
    record = await require(parts, job_id, caller)
    start = record.dropped if after is None else read_cursor(after)
    require_kept(record, start)
    if NDJSON in accept:
        return StreamingResponse(stream_results(parts, record, start), media_type=NDJSON)
    found = await parts.store.results(record, start, limit)
    at = start + len(found)
    has_more = at < record.total
    return ResultList(
        data=[Result.model_validate(result) for result in found], has_more=has_more, next=str(at) if has_more else None
    )


@router.delete("/{job_id}/results", responses=documented(410))
async def drop_results(
    job_id: JobId,
    parts: PartsDep,
    caller: Submitter,
    before: Annotated[int, Query(ge=1, description="Results of items before this one are forgotten.")],
) -> Job:
    """Forget results that the caller has stored, so that a large job's results do not fill Redis.

    They go by whole slices, and only as far as every item is answered: ``results_from`` says how far. May be repeated.
    """
    record = await require(parts, job_id, caller)
    await parts.store.drop(record, before)
    return (await require(parts, job_id, caller)).describe()


@router.post("/{job_id}/cancel")
async def cancel_job(job_id: JobId, parts: PartsDep, caller: Submitter) -> Job:
    """Cancel what is not answered yet and keep what is; a job that is final already stays as it is."""
    await require(parts, job_id, caller)
    if await parts.store.cancel(job_id) is None:
        raise no_such_job(job_id)
    return await describe(parts, await parts.store.get(job_id), job_id)


async def stream_results(parts: Parts, record: JobRecord, at: int) -> AsyncIterator[bytes]:
    """One line per result; ends when the job is final and all of it was sent."""
    while True:
        found = await parts.store.results(record, at, STREAM_PAGE)
        if found:
            at += len(found)
            yield b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in found)
        elif record.status.is_final:
            return
        else:
            await asyncio.sleep(STREAM_LOOK_S)
            again = await parts.store.get(record.id)
            if again is None:
                return
            record = again


def check_sizes(parts: Parts, items: Sequence[Item], contexts: Mapping[str, str]) -> None:
    """Refuse a job over the limits; raises TooLarge naming the setting."""
    settings = parts.settings
    if len(items) > settings.max_items:
        raise TooLarge(
            f"the job has {len(items):,} items, at most {settings.max_items:,} are taken; "
            "send it as lines (application/x-ndjson) or as several jobs, or raise CORELANE_MAX_ITEMS"
        )
    for index, item in enumerate(items):
        check_item(settings, f"item {index}", item)
    check_contexts(settings, contexts)


async def check_webhook(parts: Parts, webhook: Webhook) -> None:
    """Refuse a webhook that could never be delivered; raises WebhookRefused."""
    if parts.settings.webhook_secret is None:
        raise WebhookRefused("this service signs no webhooks: its operator has not set CORELANE_WEBHOOK_SECRET")
    try:
        await asyncio.wait_for(asyncio.to_thread(check_address, parts.settings, webhook.url), RESOLVE_S)
    except TimeoutError:
        log.info("webhook_host_slow")


async def require(parts: Parts, job_id: str, caller: Caller, ahead: int = 0) -> JobRecord:
    """The record of a caller's own job, and ``ahead`` first results; raises NotFound, for another's job as well."""
    record = await parts.store.get(job_id, ahead)
    if record is None or record.owner != caller.owner:
        raise no_such_job(job_id)
    return record


def no_such_job(job_id: str) -> NotFound:
    """The error for an id that is unknown, or no longer known."""
    return NotFound(f"there is no job {job_id}; it never existed, or its time to be kept is over")


async def describe(parts: Parts, record: JobRecord | None, job_id: str) -> Job:
    """The job as callers see it, with results once final if they are few; raises NotFound for None."""
    if record is None:
        raise no_such_job(job_id)
    job = record.describe()
    if record.status.is_final and record.total <= parts.settings.inline_results and not record.dropped:
        results = await parts.store.results(record, 0, record.total)
        job.results = [Result.model_validate(result) for result in results]
    return job


def read_cursor(after: str) -> int:
    """The item a cursor points to; raises InvalidInput if it is not one of ours."""
    if not after.isascii() or not after.isdigit():
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before")
    return int(after)
