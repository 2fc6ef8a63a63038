"""Jobs: submit, list, look, wait, cancel, retry, delete."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from api.bodies import NDJSON, FastBodyRoute
from api.deps import IdempotencyKey, JobId, JobName, Parts, PartsDep, Reader, Submitter, Wait
from api.docs.examples import JOB_REQUEST_EXAMPLES, LINES_SCHEMA
from api.errors import documented
from api.jobs.present import describe, no_such_job, require, tagged
from api.jobs.retry import retry
from api.jobs.submit import Making, check_sizes, only_once, take_in
from corelane.domain.ids import is_job_id, new_job_id
from corelane.domain.jobs import Job, JobList, JobRequest, JobStatus
from corelane.errors import InvalidInput
from corelane.store.jobs.idempotency import by_key, by_name, fingerprint
from corelane.store.jobs.listing import Filters

router = APIRouter(
    prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 422, 503), route_class=FastBodyRoute
)

#: What submitting answers with besides 202.
SUBMITTED = {200: {"model": Job, "description": "Final already."}, **documented(400, 409, 410, 413, 429)}

LINES_BODY = {"requestBody": {"content": {NDJSON: {"schema": LINES_SCHEMA}}}}

JobBody = Annotated[JobRequest, Body(openapi_examples=JOB_REQUEST_EXAMPLES)]


@router.post("", status_code=202, responses=SUBMITTED, openapi_extra=LINES_BODY)
async def submit_job(
    request: Request,
    body: JobBody,
    response: Response,
    parts: PartsDep,
    wait: Wait,
    caller: Submitter,
    key: IdempotencyKey = None,
) -> Job:
    """Take in a job. It is kept before this answers: from then on it is answered, once, whatever dies."""
    once = None
    if key is not None:
        asked = fingerprint("jobs", await request.body())
        once = by_key(caller.owner, key, asked, parts.settings.idempotency_ttl_s)
    return await submit_items(parts, body, caller.owner, response, wait, Making(once))


@router.put("/{job_id}", status_code=202, responses=SUBMITTED, openapi_extra=LINES_BODY)
async def put_job(
    job_id: JobName, request: Request, body: JobBody, response: Response, parts: PartsDep, wait: Wait, caller: Submitter
) -> Job:
    """Take in a job under a name of your own, or find it: the same body again is the same job, another one is refused.

    Wherever a job's id stands in an address, its name may. It lives as long as the job.
    """
    once = by_name(caller.owner, job_id, fingerprint("jobs", await request.body()))
    return await submit_items(parts, body, caller.owner, response, wait, Making(once, job_id))


async def submit_items(
    parts: Parts, body: JobRequest, owner: str, response: Response, wait: float | None, making: Making
) -> Job:
    """Take in a job whose items are in its body, once."""
    items = body.items or []
    check_sizes(parts, items, body.contexts or {})

    async def submit() -> Job:
        return await take_in(parts, new_job_id(), body, owner, response, wait, items=items, making=making)

    return await only_once(parts, making.once, response, wait, submit)


@router.get("")
async def list_jobs(
    request: Request,
    response: Response,
    parts: PartsDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=100, description="Most jobs in a page.")] = 20,
    after: Annotated[str | None, Query(max_length=40, description="Cursor of an earlier page's `next`.")] = None,
    status: Annotated[list[JobStatus], Query(max_length=6, description="Any of these.")] = [],  # noqa: B006
    model: Annotated[str | None, Query(max_length=200, description="A model's version, or its name.")] = None,
    label: Annotated[list[str], Query(max_length=8, description="All of these.")] = [],  # noqa: B006
    created_after: Annotated[
        datetime | None, Query(description="From this time on; RFC 3339 or seconds since 1970.")
    ] = None,
    created_before: Annotated[datetime | None, Query(description="Before this time.")] = None,
) -> JobList:
    """Your jobs, newest first, without their results. Jobs that come and go between two pages move no other.

    With filters a page may be short, or empty, though `has_more` says to go on.
    """
    if after is not None and not is_job_id(after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before, or a job's id")
    filters = Filters(frozenset(status), model, tuple(label), to_ms(created_after), to_ms(created_before))
    page = await parts.store.page(caller.owner, filters, after, limit)
    if page.next is not None:
        query = request.url.include_query_params(after=page.next).query
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    jobs = [record.describe() for record in page.records]
    first, last = (jobs[0].id, jobs[-1].id) if jobs else (None, None)
    return JobList(data=jobs, has_more=page.next is not None, next=page.next, first_id=first, last_id=last)


def to_ms(time: datetime | None) -> int | None:
    """Milliseconds since 1970; a time without a zone is UTC."""
    if time is None:
        return None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int((aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


@router.get("/{job_id}", response_model=Job, responses={304: {"description": "As the ETag says."}, **documented(410)})
async def get_job(job_id: JobId, request: Request, parts: PartsDep, wait: Wait, caller: Reader) -> Response:
    """A job as it stands, or once it is final if asked to wait. Small jobs then carry their results."""
    record = await require(parts, job_id, caller, parts.settings.inline_results)
    if wait is not None and not record.status.is_final:
        waited = await parts.completions.wait(job_id, wait)
        if waited is None:
            raise no_such_job(job_id)
        record = waited
    return tagged(request, await describe(parts, record, job_id))


@router.delete("/{job_id}", status_code=204, responses=documented(410))
async def delete_job(job_id: JobId, parts: PartsDep, caller: Submitter) -> None:
    """Forget a job, its items and its results at once; one that is not final is canceled first."""
    await require(parts, job_id, caller)
    await parts.store.delete(job_id)


@router.post("/{job_id}/cancel", responses=documented(410))
async def cancel_job(job_id: JobId, parts: PartsDep, caller: Submitter) -> Job:
    """Cancel what is not answered yet and keep what is; a job that is final already stays as it is."""
    await require(parts, job_id, caller)
    if await parts.store.cancel(job_id) is None:
        raise no_such_job(job_id)
    return await describe(parts, await parts.store.get(job_id), job_id)


@router.post("/{job_id}/retry", status_code=202, responses=SUBMITTED)
async def retry_job(job_id: JobId, response: Response, parts: PartsDep, wait: Wait, caller: Submitter) -> Job:
    """Ask again for the items of a final job that failed, were canceled or expired: a new job, `retry_of` this one.

    It has this job's options, and may be asked for again: a job is retried once, and its retry by itself.
    """
    return await retry(parts, await require(parts, job_id, caller), response, wait)
