"""Jobs: submit as JSON or as lines, list, read, wait, cancel, retry, delete."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import ValidationError

from api.deps import (
    IdempotencyKey,
    JobFilterDep,
    JobId,
    JobInPath,
    NameInPath,
    ReadCaller,
    StateDep,
    SubmitCaller,
    audit,
    find_job,
    require_job_name,
)
from api.errors import WrongForm, documented
from api.jobs import CallerWait, headers_of, no_such_job
from api.reading import PlainRoute, Prefer, Wait
from api.request_facts import NDJSON, REQUEST_FACTS, read_headers
from api.requests import PlainRequest, ReadRequest, SubmitRequest
from api.state import AppState
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.api_keys import Caller, Scope
from corelane.domain.ids import is_job_id, new_job_id
from corelane.domain.job_requests import JobRequest, is_in_place
from corelane.domain.jobs import DEFAULT_TASK, INLINE_RESULTS, Job, JobList
from corelane.errors import InvalidInput, UnknownModel, WrongTask
from corelane.store.jobs.idempotency import by_key, by_name, fingerprint
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.submission import Submission
from corelane.submitting.large_bodies import LARGE_BYTES
from corelane.submitting.retries import retry
from corelane.submitting.submitter import Submitted
from corelane.tasks.forms import form_of, forms
from corelane.tasks.registry import TASKS, task_named
from corelane.tasks.task import Task

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 422, 503))
hot = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 422, 503), route_class=PlainRoute)

#: Responses to a submission other than 202.
SUBMITTED = {
    200: {"model": Job, "description": "Final already."},
    **documented(400, 409, 410, 413, 429),
}

LINES = (
    "One item a line, as many as the disk takes. The first line may be the job's head instead: all of a job but items."
)
LINES_BODY = {"requestBody": {"content": {NDJSON: {"schema": {"type": "string", "description": LINES}}}}}

EXAMPLES: Any = {name: example for task in TASKS.values() for name, example in task.job_examples.items()}

#: A job before it is validated: the task of the job's model determines the form of items and options.
JobBody = Annotated[dict[str, Any], Body(openapi_examples=EXAMPLES)]


@hot.post("", status_code=202, response_model=Job, responses=SUBMITTED, openapi_extra=LINES_BODY)
async def submit_job(
    request: SubmitRequest, body: JobBody, key: IdempotencyKey = None, wait: Wait = None, prefer: Prefer = None
) -> Response:
    """Submit a job. It is stored before this responds. From then on it is answered, once, whichever process dies."""
    return await take_body(request, body, request.waits(wait, prefer), key=key)


@hot.put("/{job_id}", status_code=202, response_model=Job, responses=SUBMITTED, openapi_extra=LINES_BODY)
async def put_job(
    request: SubmitRequest, job_id: NameInPath, body: JobBody, wait: Wait = None, prefer: Prefer = None
) -> Response:
    """Submit a job under a name of your own. The same body again returns the same job; another body is refused.

    In every address the name can replace the job's id. The name is kept as long as the job.
    """
    require_job_name(job_id)
    return await take_body(request, body, request.waits(wait, prefer), name=job_id)


async def take_body(
    request: PlainRequest, given: dict[str, Any], wait: CallerWait, *, key: str | None = None, name: str | None = None
) -> Response:
    """Validate a body by the form of its model's task, and accept the job.

    If the model was moved to a version of another task, the body is read again by the form of that task.
    """
    state, sent = request.app_state, await request.body()
    tasks, model = state.jobs.submitter.tasks, given.get("model", DEFAULT_ALIAS)
    model = model if isinstance(model, str) else DEFAULT_ALIAS  # it may have any form yet
    for is_last in (False, True):
        task, missing = task_named(DEFAULT_TASK), None
        try:
            task = await tasks.of_model(model)
        except UnknownModel as error:
            # An earlier copy of this request may have made its job while the model was there: return that job.
            missing = error
        try:
            form = partial(read_form, given, task)
            is_small = len(sent) <= LARGE_BYTES
            body = form() if is_small else await state.large_bodies.read(request.owner, sent, form, is_parsed=True)
            return await take_job(request, body, sent, wait, key=key, name=name)
        except (WrongForm, WrongTask):
            if missing is not None:
                raise missing from None
            if is_last or await tasks.of_model(model, again=True) is task:
                raise
    raise AssertionError


def read_form(given: dict[str, Any], task: Task, _: bytes = b"") -> JobRequest:
    """Return a job in the form of a task; raise WrongForm."""
    form = forms(task).request
    try:
        return form.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        hint = f"; this model takes {form_of(task)}" if any(map(is_of_items, faults)) else ""
        skipped = 2 if is_in_place(given) else 0  # the fields of a single item in place are not in a list
        placed = [each["loc"][skipped if each["loc"][:1] == ("items",) else 0 :] for each in faults]
        raise WrongForm(
            [{**each, "loc": ("body", *at)} for each, at in zip(faults, placed, strict=True)], form, hint
        ) from None


def is_of_items(fault: Mapping[str, Any]) -> bool:
    """Return whether a fault of a job may concern its items: it is in `items`, an unknown field, or missing items."""
    at = fault["loc"]
    if fault["type"] == "extra_forbidden":
        return bool(at[0] != "options")
    return at[0] == "items" if at else "`items`" in fault["msg"]


async def take_job(
    request: PlainRequest,
    body: JobRequest,
    sent: bytes,
    wait: CallerWait,
    *,
    key: str | None = None,
    name: str | None = None,
) -> Response:
    """Accept a job, once if it has a key or a name, and respond with the job.

    ``sent`` is the body as received. The request drops a large body, so that it leaves memory while a caller waits.
    """
    state, caller = request.app_state, request.caller
    job_id, once = new_job_id(cell=state.settings.cell), None
    if name is not None:
        once = by_name(caller.owner, name, fingerprint("jobs", sent))
    elif key is not None:
        once = by_key(caller.owner, key, fingerprint("jobs", sent))
    submission = Submission(
        body,
        caller.owner,
        () if body.unchecked else body.items or (),
        id=job_id,
        name=name,
        once=once,
        input_url=body.input_url,
        tell=state.jobs.completions.listener if wait.seconds else "",
        request=REQUEST_FACTS.get(),
    )
    if body.unchecked:
        submission = await state.jobs.tolerant.prepare(submission, body.unchecked)
    if len(sent) <= LARGE_BYTES:
        return await present(state, await state.jobs.submit(submission, wait), wait)
    submitted = await state.jobs.submit(submission, request.waits(None, None))
    del sent, submission
    body.let_go()
    request.let_go()
    return await present(state, replace(submitted, record=await state.jobs.wait(submitted.record, wait)), wait)


async def present(state: AppState, submitted: Submitted, wait: CallerWait, *, results: bool = True) -> Response:
    """Respond with a submitted job: 200 if it is final, else 202. With ``results`` the available ones are included."""
    shown = await state.jobs.shown(submitted.record, is_held=submitted.is_held, results=results)
    status = 200 if submitted.record.status.is_final else 202
    return Response(orjson.dumps(shown), status, headers_of(submitted, wait), "application/json")


@router.get("")
async def list_jobs(
    request: Request,
    response: Response,
    state: StateDep,
    caller: ReadCaller,
    wanted: JobFilterDep,
    limit: Annotated[int, Query(ge=1, le=100, description="Most jobs in a page.")] = 20,
    after: Annotated[str | None, Query(max_length=40, description="Cursor of an earlier page's `next`.")] = None,
) -> JobList:
    """List your jobs, newest first, without their results. Jobs that come or go between two pages do not shift others.

    With filters a page may be short, or empty, though `has_more` says to go on.
    """
    if after is not None and not is_job_id(after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before, or a job's id")
    page = await state.store.page(state.jobs.owner_meant(caller, wanted.owner), wanted, after, limit)
    if page.next is not None:
        query = request.url.include_query_params(after=page.next).query
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    jobs = [of_owner(record.describe(), record, caller) for record in page.records]
    first, last = (jobs[0].id, jobs[-1].id) if jobs else (None, None)
    return JobList(data=jobs, has_more=page.next is not None, next=page.next, first_id=first, last_id=last)


@hot.get("/{job_id}", response_model=Job, responses={304: {"description": "As the ETag says."}, **documented(410)})
async def get_job(request: ReadRequest, job_id: JobInPath, wait: Wait = None, prefer: Prefer = None) -> Response:
    """Return a job as it stands, or once it is final if asked to wait. Small jobs then carry their results."""
    jobs, caller = request.app_state.jobs, request.caller
    job_id = await find_job(request.app_state, caller, job_id)
    record = await jobs.require(job_id, caller, INLINE_RESULTS)
    waited = await jobs.wait(record, request.waits(wait, prefer))
    shown = await jobs.shown(waited)
    if record.owner != caller.owner:
        shown["owner"] = record.owner
    body = orjson.dumps(shown)
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag} if waited.status.is_final else {"ETag": etag, "Retry-After": str(waited.retry_after_s)}
    if has_etag(read_headers(request.scope).get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def has_etag(header: str, etag: str) -> bool:
    """Return whether ``If-None-Match`` contains an ETag, by the weak comparison (RFC 9110)."""
    return header.strip() == "*" or etag.removeprefix("W/") in re.findall(r'(?:W/)?("[^"]*")', header)


@router.delete("/{job_id}", status_code=204, responses=documented(410))
async def delete_job(job_id: JobId, state: StateDep, caller: SubmitCaller) -> None:
    """Forget a job, its items and its results at once; one that is not final is canceled first."""
    record = await state.jobs.require(job_id, caller)
    if await state.store.delete(job_id):
        audit_foreign(caller, record, "job.delete")


@router.post("/{job_id}/cancel", responses=documented(410))
async def cancel_job(job_id: JobId, state: StateDep, caller: SubmitCaller) -> Job:
    """Cancel the items that are not answered yet and keep the others; a final job stays as it is."""
    record = await state.jobs.require(job_id, caller)
    if (is_canceled := await state.store.cancel(job_id)) is None:
        raise no_such_job(job_id)
    if is_canceled:
        audit_foreign(caller, record, "job.cancel")
    return await state.jobs.describe(await state.jobs.require(job_id, caller), results=Scope.READ in caller.scopes)


@hot.post("/{job_id}/retry", status_code=202, response_model=Job, responses=SUBMITTED)
async def retry_job(request: SubmitRequest, job_id: JobInPath, wait: Wait = None, prefer: Prefer = None) -> Response:
    """Ask again for the items of a final job that failed, were canceled or expired: a new job, `retry_of` this one.

    The new job has the same options. A job has one retry, which repeated calls return; the retry can be retried too.
    """
    state, caller, patience = request.app_state, request.caller, request.waits(wait, prefer)
    submitted = await take_retry(state, await find_job(state, caller, job_id), caller)
    submitted = await state.jobs.settle(submitted, patience)
    return await present(state, submitted, patience, results=Scope.READ in caller.scopes)


async def take_retry(state: AppState, job_id: str, caller: Caller) -> Submitted:
    """Make the retry of a job, or find it if it was made before."""
    record = await state.jobs.require(job_id, caller)
    submitter, store = state.jobs.submitter, state.store
    submitted = await retry(submitter, store, state.settings, record, REQUEST_FACTS.get())
    if not submitted.is_replayed:
        audit_foreign(caller, record, "job.retry", f"as {submitted.record.id}")
    return submitted


def of_owner(job: Job, record: JobRecord, caller: Caller) -> Job:
    """Return a job, with its owner if that is not the caller."""
    return job if record.owner == caller.owner else job.model_copy(update={"owner": record.owner})


def audit_foreign(caller: Caller, record: JobRecord, action: str, detail: str = "") -> None:
    """Audit what an admin does to another owner's job."""
    if record.owner != caller.owner:
        of = f"of {record.owner}"
        audit(caller, action, record.id, f"{of}, {detail}" if detail else of)
