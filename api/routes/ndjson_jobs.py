"""The other form of ``POST /v1/jobs``: a job sent as lines (NDJSON), as large as the disk allows."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from api.bodies import is_lines
from api.deps import IdempotencyKey, JobName, Parts, PartsDep, Submitter, Wait
from api.jobs.ndjson import LineReader
from api.jobs.submit import Making, admit, find_made, replay, take_in_upload
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Job
from corelane.errors import StoreUnavailable
from corelane.store.jobs.idempotency import Held, by_key, by_name, start_fingerprint
from corelane.store.jobs.store import Upload


class LinesRoute(APIRoute):
    """Matches only requests whose body is NDJSON; all others are left to the JSON form."""

    def matches(self, scope: Scope) -> tuple[Match, Any]:
        """Whether this request is ours."""
        return super().matches(scope) if is_lines(scope) else (Match.NONE, {})


router = APIRouter(route_class=LinesRoute, include_in_schema=False)


@router.post("/v1/jobs", status_code=202)
async def submit_lines(
    request: Request,
    response: Response,
    parts: PartsDep,
    wait: Wait,
    caller: Submitter,
    key: IdempotencyKey = None,
) -> Job:
    """Take in a job of one item a line; the first line may be its head: options, priority, contexts and so on."""
    once = None if key is None else by_key(caller.owner, key, "", parts.settings.idempotency_ttl_s)
    return await take_lines(parts, request, caller.owner, response, wait, Making(once))


@router.put("/v1/jobs/{job_id}", status_code=202)
async def put_lines(
    job_id: JobName, request: Request, response: Response, parts: PartsDep, wait: Wait, caller: Submitter
) -> Job:
    """The same under a name of the caller's own."""
    return await take_lines(
        parts, request, caller.owner, response, wait, Making(by_name(caller.owner, job_id, ""), job_id)
    )


async def take_lines(
    parts: Parts, request: Request, owner: str, response: Response, wait: float | None, making: Making
) -> Job:
    """Take in a job sent as lines, once: where its job is there already, the body is only read to be compared."""
    once, digest = making.once, start_fingerprint("lines")
    reader = LineReader(parts.settings, request.stream(), None if once is None else digest)
    holder = None if once is None else await find_made(parts, once)
    if holder is not None:
        await reader.skim()
    else:
        await reader.read_head()
        await admit(parts, new_job_id(), reader.head, owner)
        job_id, upload = await keep(parts, reader)
        if once is not None:
            making = replace(making, once=replace(once, fingerprint=digest.hexdigest()))
        try:
            return await take_in_upload(parts, job_id, reader.head, owner, response, wait, upload, making)
        except Held as held:
            holder = held.holder
    made = None
    if once is not None and holder is not None:
        made = await replay(parts, replace(once, fingerprint=digest.hexdigest()), holder, response, wait)
    if made is None:
        raise StoreUnavailable("the job of this request went away just now; send it again")
    return made


async def keep(parts: Parts, reader: LineReader) -> tuple[str, Upload]:
    """The items in a file, and the id of their job, made only now: ids tell when jobs were submitted."""
    upload = await reader.keep(new_job_id())
    job_id = new_job_id()
    name = f"{job_id}.jsonl"
    (parts.settings.files_root / upload.name).rename(parts.settings.files_root / name)
    return job_id, replace(upload, name=name)
