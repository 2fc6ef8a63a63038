"""One question and its answer, without a job to manage. Also the format of Hugging Face's removed pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse

from api.compat.huggingface import HfAnswer, HfRequest, answers_of, require_answered
from api.deps import StateDep, SubmitCaller, WaitDep
from api.errors import documented
from api.jobs import CallerWait, as_shown, headers_of, may_reuse
from api.middleware.edge import JsonRoute
from api.middleware.fast_path import FastRequest
from api.request_facts import REQUEST_FACTS
from api.routes.jobs import wait_of
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Job, JobHead
from corelane.log import get_logger
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.submission import Submission
from corelane.tasks.question_answering.requests import AnswerRequest
from corelane.tasks.question_answering.wire import AnswerResult, Question

log = get_logger(__name__)

router = APIRouter(
    prefix="/v1", tags=["answers"], responses=documented(400, 403, 413, 422, 429, 503), route_class=JsonRoute
)

NOT_YET: dict[int | str, dict[str, Any]] = {
    202: {"model": Job, "description": "Not done within the time waited: the job, to be looked at where Location says."}
}

#: Longest time that these routes wait, in seconds; most proxies give up after that.
MAX_WAIT_S = 60.0


@router.post("/answers", response_model=AnswerResult, responses=NOT_YET)
async def answer(
    http: Request, request: Annotated[AnswerRequest, Body()], state: StateDep, wait: WaitDep, caller: SubmitCaller
) -> Response:
    """Answer one question, within a minute or as long as asked to wait; 202 with its job if that is not enough."""
    return await answer_one(state, request, caller, wait, reuse=may_reuse(http.headers))


async def answer_fast(asked: FastRequest) -> Response | None:
    """Do what ``answer`` does, for a valid body of JSON."""
    wait = wait_of(asked)
    if wait is None or Scope.SUBMIT not in asked.caller.scopes:
        return None
    try:
        request = AnswerRequest.model_validate(orjson.loads(asked.body))
    except ValueError:
        return None
    return await answer_one(asked.state, request, asked.caller, wait, reuse=may_reuse(asked.headers))


async def answer_one(
    state: AppState, request: AnswerRequest, caller: Caller, wait: CallerWait, *, reuse: bool
) -> Response:
    """Ask one question; return its result, or 202 with its job. Without ``reuse`` no other job's answer is used."""
    head = JobHead(
        model=request.model, options=request.options, priority=request.priority, reuse=request.reuse and reuse
    )
    found = await ask(state, caller.owner, head, [request.item], wait)
    if isinstance(found, Response):
        return found
    return Response(orjson.dumps(as_shown(found.record, found.results[0])), 200, found.headers, "application/json")


@router.post("/hf/question-answering", response_model=HfAnswer | list[HfAnswer | list[HfAnswer]], responses=NOT_YET)
async def answer_as_pipeline(
    http: Request,
    request: Annotated[HfRequest, Body()],
    response: Response,
    state: StateDep,
    wait: WaitDep,
    caller: SubmitCaller,
) -> Any:
    """Answer as transformers' question-answering pipeline did, for its former users."""
    items = [Question(question=each.question, context=each.context) for each in request.asked]
    parameters = request.parameters
    reuse = may_reuse(http.headers)
    head = JobHead(model=request.model, options=parameters.options, priority=parameters.priority, reuse=reuse)
    answered = await ask(state, caller.owner, head, items, wait)
    if isinstance(answered, Response):
        return answered
    response.headers.update(answered.headers)
    results = [AnswerResult.model_validate(each) for each in answered.results]
    require_answered(results)
    found = [answers_of(result, parameters) for result in results]
    return found if isinstance(request.inputs, list) else found[0]


@dataclass(frozen=True, slots=True)
class Answered:
    """The stored results of a job that was waited for, and the response's headers."""

    record: JobRecord
    results: Sequence[dict[str, Any]]
    headers: dict[str, str]


async def ask(
    state: AppState, owner: str, head: JobHead, items: Sequence[Question], wait: CallerWait
) -> Answered | Response:
    """Submit a job and wait for it; return its results, or 202 with the job if it is not final in time.

    If the caller disconnects, the job is canceled: its id was not given out, and this route has no ``Idempotency-Key``.
    """
    longest = min(MAX_WAIT_S, state.settings.max_wait_s)
    wait.seconds = longest if wait.seconds is None else min(wait.seconds, longest)
    job_id = new_job_id(cell=state.settings.cell)
    submission = Submission(head, owner, items, id=job_id, is_awaited=True, request=REQUEST_FACTS.get())
    submitted = await state.jobs.submit(submission, wait)
    record, headers = submitted.record, headers_of(submitted, wait)
    if not record.status.is_final:
        if wait.has_left:
            log.info("caller_left", job_id=record.id)
            await state.store.cancel(record.id)
        job = await state.jobs.describe(record, is_held=submitted.is_held)
        return JSONResponse(job.model_dump(mode="json"), 202, headers)
    return Answered(record, await state.store.results(record, 0, len(items)), headers)


#: Handlers of this router's endpoints on the fast path.
FAST_HANDLERS = {answer: answer_fast}
