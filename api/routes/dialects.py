"""The routes of dialects: items go in, and their results come out, without a job to manage."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from api.errors import documented
from api.jobs import Asked, CallerWait, headers_of
from api.reading import PlainRoute, Prefer, Wait
from api.request_facts import REQUEST_FACTS
from api.requests import PlainRequest, SubmitRequest, faults_of_body
from api.state import AppState
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Job, JobHead
from corelane.errors import NotInTime, NotReady, WrongTask
from corelane.log import get_logger
from corelane.store.jobs.submission import Submission
from corelane.submitting.submitter import Submitted
from corelane.tasks.dialects import Dialect, Told, plain, require_outputs
from corelane.tasks.forms import Predict
from corelane.tasks.registry import DIALECTS

log = get_logger(__name__)

hot = APIRouter(responses=documented(400, 403, 404, 413, 422, 429, 503), route_class=PlainRoute)

NOT_YET: dict[int | str, dict[str, Any]] = {
    202: {"model": Job, "description": "Not done within the time waited: the job, to be looked at where Location says."}
}

#: Longest time that these routes wait, in seconds; most proxies give up after that.
MAX_WAIT_S = 60.0

#: Replies to more items than this are made in a thread.
MANY_ITEMS = 100

ModelInAddress = Annotated[
    str | None,
    Query(alias="model", max_length=200, description="The model, for clients that cannot name it in the body."),
]


def handler_of(dialect: Dialect) -> Callable[..., Awaitable[Response]]:
    """Return the handler of a dialect's route."""

    async def serve(
        request: SubmitRequest,
        body: Annotated[dialect.body, Body(openapi_examples={"example": {"value": dict(dialect.example)}})],  # type: ignore[name-defined]
        named: ModelInAddress = None,
        wait: Wait = None,
        prefer: Prefer = None,
    ) -> Response:
        return await respond(dialect, request, body, request.waits(wait, prefer), named)

    serve.__name__, serve.__doc__ = type(dialect).__name__, dialect.__doc__
    return serve


async def respond(dialect: Dialect, request: PlainRequest, body: Any, wait: CallerWait, named: str | None) -> Response:
    """Submit the items of a request, and reply with their results.

    If the wait ends first, Corelane's own dialect replies 202 with the job. Other dialects raise NotInTime.
    """
    state, owner = request.app_state, request.owner
    model = request.path_params.get("model") or (body.model if "model" in body.model_fields_set else None) or named
    if isinstance(dialect, Predict):
        dialect = Predict(await state.jobs.submitter.tasks.announced(model or DEFAULT_ALIAS))
    try:
        asked = dialect.read(body)
    except ValidationError as error:
        raise RequestValidationError(faults_of_body(error)) from None
    submitter, task = state.jobs.submitter, asked.options.task
    assumed = model or submitter.likely_default(task)
    head = JobHead(
        model=assumed or await submitter.tasks.default_of(task),
        options=asked.options,
        priority=asked.priority,
    )
    job = Submission(
        head,
        owner,
        asked.items,
        id=new_job_id(cell=state.settings.cell),
        tell=state.jobs.completions.listener,
        request=REQUEST_FACTS.get(),
    )
    asked_again = None if dialect.is_own else (f"{owner} {dialect.path} {model}", await request.body())
    try:
        submitted = await ask(state, job, wait, asked_again)
    except (NotReady, WrongTask):
        if model or not assumed:
            raise
        head = head.model_copy(update={"model": await submitter.tasks.default_of(task)})
        submitted = await ask(state, replace(job, head=head), wait, asked_again)
    record, headers = submitted.record, headers_of(submitted, wait)
    if not record.status.is_final:
        shown = await state.jobs.describe(record, is_held=submitted.is_held)
        return JSONResponse(shown.model_dump(mode="json"), 202, headers)
    results = await state.store.results(record, 0, len(asked.items))
    if not dialect.is_own:
        require_outputs(results)
    told = Told(record.id, record.version, record.used.tokens if record.used else None)
    if told.tokens is not None:
        headers["x-compute-tokens"] = str(told.tokens)
    if cut := sum(result.get("cut", 0) for result in results):
        headers["x-cut-tokens"] = str(cut)

    def write() -> bytes:
        return orjson.dumps(dialect.reply(body, results, told), default=plain)

    reply = write() if len(results) <= MANY_ITEMS else await asyncio.to_thread(write)
    return Response(reply, 200, headers, "application/json")


async def ask(state: AppState, job: Submission, wait: CallerWait, asked: Asked | None) -> Submitted:
    """Submit a job, or find the late job of an equal request, and wait for it; raise NotInTime.

    If ``asked`` is None, a job that is not final is returned. If the caller disconnects, the job is canceled: its id
    was not given out, and this route has no ``Idempotency-Key``.
    """
    longest = min(MAX_WAIT_S, state.settings.max_wait_s)
    wait.seconds = longest if wait.seconds is None else min(wait.seconds, longest)
    found = None if asked is None else await state.late_jobs.find(asked)
    submitted = await (state.jobs.settle(Submitted(found, True), wait) if found else state.jobs.submit(job, wait))
    record = submitted.record
    if record.status.is_final:
        return submitted
    if wait.has_left:
        log.info("caller_left", job_id=record.id)
        await state.store.cancel(record.id)
    elif asked is not None:
        await state.late_jobs.keep(asked, record.id)
        raise NotInTime(
            f"this takes longer than {wait.seconds:g} s and goes on: send the same request again to have its results, "
            "or send fewer inputs at a time"
        )
    return submitted


for each in DIALECTS.values():
    more = NOT_YET if each.is_own else documented(424) if each.errors_of == "tei" else {}
    hot.post(each.path, tags=[each.tag], response_model=each.returns, responses=more)(handler_of(each))
