"""Jobs that are sent as lines."""

from collections.abc import AsyncIterator
from dataclasses import replace

from fastapi import APIRouter, Response

from api.deps import IdempotencyKey, NameInPath, require_job_name
from api.jobs import CallerWait
from api.reading import NdjsonRoute, Prefer, Wait
from api.request_facts import REQUEST_FACTS
from api.requests import PlainRequest, SubmitRequest
from api.routes.jobs import present
from api.state import AppState
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Job
from corelane.errors import StoreUnavailable, WrongTask
from corelane.metrics.definitions import SUBMIT_S
from corelane.store.jobs.idempotency import Once, by_key, by_name, start_fingerprint
from corelane.store.jobs.submission import Submission
from corelane.submitting.ndjson import NdjsonBody, submit_file
from corelane.submitting.submitter import Submitted

#: The NDJSON form of submitting; the OpenAPI document describes it together with the JSON form.
hot = APIRouter(prefix="/v1/jobs", route_class=NdjsonRoute, include_in_schema=False)


@hot.post("", status_code=202, response_model=Job)
async def submit_lines(
    request: SubmitRequest, key: IdempotencyKey = None, wait: Wait = None, prefer: Prefer = None
) -> Response:
    """Take in a job of one item a line; the first line may be its head: options, priority and so on."""
    once = None if key is None else by_key(request.owner, key, "")
    return await settle_lines(request, once, None, request.waits(wait, prefer))


@hot.put("/{job_id}", status_code=202, response_model=Job)
async def put_lines(request: SubmitRequest, job_id: NameInPath, wait: Wait = None, prefer: Prefer = None) -> Response:
    """Make a job of one item a line under the name that the caller gives in the path."""
    require_job_name(job_id)
    return await settle_lines(request, by_name(request.owner, job_id, ""), job_id, request.waits(wait, prefer))


async def settle_lines(request: PlainRequest, once: Once | None, name: str | None, wait: CallerWait) -> Response:
    """Take in a job sent as lines, and respond with it."""
    state = request.app_state
    submitted = await take_lines(state, request.stream(), request.owner, once, name)
    return await present(state, await state.jobs.settle(submitted, wait), wait)


async def take_lines(
    state: AppState, body: AsyncIterator[bytes], owner: str, once: Once | None, name: str | None
) -> Submitted:
    """Take in a job sent as lines, once. If it was made before, the body is only read to compare it."""
    submitter, digest = state.jobs.submitter, start_fingerprint("lines")
    lines = NdjsonBody(
        state.settings,
        body,
        submitter.tasks,
        None if once is None else digest,
        state.large_bodies,
        owner,
    )
    if once is not None and await submitter.is_made(once):
        await lines.digest_only()
        made = await submitter.replay(replace(once, fingerprint=digest.hexdigest()))
        if made is None:
            raise StoreUnavailable("The job was deleted while this request was being handled. Send the request again.")
        return made
    await lines.read_head()
    try:
        admission = await submitter.admit(lines.head, owner, new_job_id(cell=state.settings.cell))
    except WrongTask:
        await lines.take_head()
        admission = await submitter.admit(lines.head, owner, new_job_id(cell=state.settings.cell))
    job_id, file = await lines.keep()
    if once is not None:
        once = replace(once, fingerprint=digest.hexdigest())
    submission = Submission(
        lines.head,
        owner,
        file=file,
        id=job_id,
        name=name,
        once=once,
        request=REQUEST_FACTS.get(),
    )
    with state.metrics.recorder.timed(SUBMIT_S):
        return await submit_file(submitter, state.settings, submission, admission)
