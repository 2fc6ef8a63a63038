"""A caller's own job: found, or refused with the right word, and shown as JSON."""

import hashlib
import re

from fastapi import Request, Response

from api.deps import Caller, Parts
from corelane.domain.jobs import Job, JobStatus, Result
from corelane.errors import JobExpired, NotFound
from corelane.store.jobs.records import JobRecord


async def require(parts: Parts, job_id: str, caller: Caller, ahead: int = 0) -> JobRecord:
    """The record of a caller's own job, and ``ahead`` first results.

    Raises NotFound, for another's job as well, and JobExpired for one that is kept no longer.
    """
    record = await parts.store.get(job_id, ahead)
    if record is None:
        if await parts.store.is_gone(job_id, caller.owner):
            raise JobExpired(f"the time for which {job_id} was kept is over; it and its results are gone")
        raise no_such_job(job_id)
    if record.owner != caller.owner:
        raise no_such_job(job_id)
    return record


def no_such_job(job_id: str) -> NotFound:
    """The error for an id that is unknown, or no longer known."""
    return NotFound(f"there is no job {job_id}; it never existed, or it was deleted")


async def describe(parts: Parts, record: JobRecord | None, job_id: str, *, is_held: bool = False) -> Job:
    """The job as callers see it, with results once final if they are few; raises NotFound for None.

    While it waits for a version that no core holds, it says so; ``is_held`` if it is known that one does.
    """
    if record is None:
        raise no_such_job(job_id)
    job = record.describe()
    if record.status is JobStatus.QUEUED and not is_held:
        outlook = await parts.fleet.outlook(record.version)
        job.waiting_for = None if outlook is None else outlook.reason
    if record.status.is_final and record.total <= parts.settings.inline_results and not record.dropped:
        results = await parts.store.results(record, 0, record.total)
        job.results = [Result.model_validate(result) for result in results]
    return job


def tagged(request: Request, job: Job) -> Response:
    """The job with a weak ETag of all that is shown, or 304 if the caller has just that."""
    body = job.model_dump_json().encode()
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag}
    if not job.status.is_final:
        headers["Retry-After"] = "1"
    if has_etag(request.headers.get("If-None-Match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def has_etag(header: str | None, etag: str) -> bool:
    """Whether ``If-None-Match`` names an ETag, by the weak comparison (RFC 9110)."""
    if header is None:
        return False
    opaque = etag.removeprefix("W/")
    return header.strip() == "*" or opaque in re.findall(r'(?:W/)?("[^"]*")', header)
