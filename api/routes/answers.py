"""One question, its answer: without a job to look after. And the payload of Hugging Face's removed pipeline."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from fastapi.responses import JSONResponse

from api.bodies import FastBodyRoute
from api.compat.huggingface import HfAnswer, HfRequest, answers_of, require_answered
from api.deps import Parts, PartsDep, Submitter, Wait
from api.errors import documented
from api.jobs.submit import check_sizes, take_in
from api.middleware.presence import PRESENCE
from corelane.domain.batches import AnswerRequest
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item, Job, JobHead, Result
from corelane.log import get_logger

log = get_logger(__name__)

router = APIRouter(
    prefix="/v1", tags=["answers"], responses=documented(400, 403, 413, 422, 429, 503), route_class=FastBodyRoute
)

NOT_YET: dict[int | str, dict[str, Any]] = {
    202: {"model": Job, "description": "Not done within the time waited: the job, to be looked at where Location says."}
}

#: Longest time these routes wait, in seconds; most proxies give up then.
MAX_WAIT_S = 60.0


@router.post("/answers", response_model=Result, responses=NOT_YET)
async def answer(
    request: Annotated[AnswerRequest, Body()], response: Response, parts: PartsDep, wait: Wait, caller: Submitter
) -> Result | Response:
    """Answer one question, within a minute or as long as asked to wait; 202 with its job if that is not enough."""
    head = JobHead(model=request.model, options=request.options, priority=request.priority)
    job, results = await ask(parts, caller.owner, head, [request.item], response, wait)
    return results[0] if results else not_yet(job, response)


@router.post("/hf/question-answering", response_model=HfAnswer | list[HfAnswer | list[HfAnswer]], responses=NOT_YET)
async def answer_as_pipeline(
    request: Annotated[HfRequest, Body()], response: Response, parts: PartsDep, wait: Wait, caller: Submitter
) -> Any:
    """Answer as transformers' question-answering pipeline did, for those who come from there."""
    items = [Item(question=each.question, context=each.context) for each in request.asked]
    parameters = request.parameters
    head = JobHead(model=request.model, options=parameters.options, priority=parameters.priority)
    job, results = await ask(parts, caller.owner, head, items, response, wait)
    if not results:
        return not_yet(job, response)
    require_answered(results)
    found = [answers_of(result, parameters) for result in results]
    return found if isinstance(request.inputs, list) else found[0]


async def ask(
    parts: Parts, owner: str, head: JobHead, items: list[Item], response: Response, wait: float | None
) -> tuple[Job, list[Result]]:
    """Submit a job and wait for it; its results are empty if it is not final by then.

    A caller who leaves cancels the job: no one else knows its id, and no ``Idempotency-Key`` stands for it here.
    """
    check_sizes(parts, items, {})
    longest = min(MAX_WAIT_S, parts.settings.max_wait_s)
    seconds = longest if wait is None else min(wait, longest)
    job = await take_in(parts, new_job_id(), head, owner, response, seconds, items=items)
    if not job.status.is_final:
        if PRESENCE.get().has_left:
            log.info("caller_left", job_id=job.id)
            await parts.store.cancel(job.id)
        return job, []
    if job.results is not None:
        return job, job.results
    record = await parts.store.get(job.id)
    stored = await parts.store.results(record, 0, len(items)) if record is not None else []
    return job, [Result.model_validate(each) for each in stored]


def not_yet(job: Job, response: Response) -> JSONResponse:
    """202 with a job that goes on."""
    headers = {name: value for name, value in response.headers.items() if name.lower() != "content-length"}
    return JSONResponse(job.model_dump(mode="json"), 202, headers)
