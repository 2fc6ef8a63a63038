"""The routes of dialects: items go in, and their results come out, without a job to manage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from api.deps import StateDep, SubmitCaller, WaitDep
from api.errors import documented
from api.jobs import Asked, CallerWait, headers_of
from api.middleware.edge import JsonRoute
from api.middleware.fast_path import FastHandler, FastRequest
from api.request_facts import REQUEST_FACTS
from api.routes.jobs import wait_of
from api.state import AppState
from corelane.domain.api_keys import Scope
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Job, JobHead
from corelane.errors import NotInTime
from corelane.log import get_logger
from corelane.store.jobs.submission import Submission
from corelane.submitting.submitter import Submitted
from corelane.tasks.dialects import Dialect, Told, plain, require_outputs
from corelane.tasks.registry import DIALECTS

log = get_logger(__name__)

router = APIRouter(responses=documented(400, 403, 404, 413, 422, 429, 503), route_class=JsonRoute)

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


def routes_of(dialect: Dialect) -> tuple[Callable[..., Awaitable[Response]], FastHandler]:
    """Return the endpoint of a dialect, and its handler on the fast path."""

    async def serve(
        http: Request,
        body: Annotated[dialect.body, Body(openapi_examples={"example": {"value": dict(dialect.example)}})],  # type: ignore[name-defined]
        state: StateDep,
        wait: WaitDep,
        caller: SubmitCaller,
        named: ModelInAddress = None,
    ) -> Response:
        return await respond(dialect, state, body, await http.body(), caller.owner, wait, named)

    async def serve_fast(asked: FastRequest) -> Response | None:
        wait = wait_of(asked)
        if wait is None or Scope.SUBMIT not in asked.caller.scopes:
            return None
        try:
            body = dialect.body.model_validate(orjson.loads(asked.body))
        except ValueError:
            return None
        return await respond(dialect, asked.state, body, asked.body, asked.caller.owner, wait)

    serve.__name__, serve.__doc__ = type(dialect).__name__, dialect.__doc__
    return serve, serve_fast


async def respond(
    dialect: Dialect,
    state: AppState,
    body: Any,
    sent: bytes,
    owner: str,
    wait: CallerWait,
    named: str | None = None,
) -> Response:
    """Submit the items of a request, which was ``sent`` as these bytes, and reply with their results.

    If they take longer, the reply is 202 with the job in Corelane's own dialect. In others NotInTime is raised.
    """
    try:
        asked = dialect.read(body)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in faults]) from None
    model = (body.model if "model" in body.model_fields_set else None) or named
    head = JobHead(
        model=model or await state.jobs.submitter.tasks.default_of(asked.options.task),
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
    asked_again = None if dialect.is_own else (f"{owner} {dialect.path} {named}", sent)
    submitted = await ask(state, job, wait, asked_again)
    record, headers = submitted.record, headers_of(submitted, wait)
    if not record.status.is_final:
        shown = await state.jobs.describe(record, is_held=submitted.is_held)
        return JSONResponse(shown.model_dump(mode="json"), 202, headers)
    results = await state.store.results(record, 0, len(asked.items))
    if not dialect.is_own:
        require_outputs(results)
    told = Told(record.id, record.version, record.used.tokens if record.used else None)

    def write() -> bytes:
        return orjson.dumps(dialect.reply(body, results, told), default=plain)

    reply = write() if len(results) <= MANY_ITEMS else await asyncio.to_thread(write)
    return Response(reply, 200, headers, "application/json")


async def ask(state: AppState, job: Submission, wait: CallerWait, asked: Asked | None) -> Submitted:
    """Submit a job and wait for it, or for the late one of an equal request; raise NotInTime.

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


#: Handlers of this router's endpoints on the fast path.
FAST_HANDLERS: dict[Any, FastHandler] = {}

for each in DIALECTS.values():
    endpoint, fast = routes_of(each)
    FAST_HANDLERS[endpoint] = fast
    late = NOT_YET if each.is_own else {}
    router.post(each.path, tags=[each.tag], response_model=each.returns, responses=late)(endpoint)
