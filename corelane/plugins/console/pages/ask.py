"""The ask box: one question, its answer marked in the passage, and the same call with curl or Python."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.errors import status_of
from api.jobs import CallerWait
from api.request_facts import REQUEST_FACTS
from api.routes.fleet import list_models
from api.state import AppState
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import JobHead
from corelane.errors import CorelaneError, InvalidInput
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import faults_of, read_form, service_of
from corelane.plugins.console.pages.highlight import cut
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import is_htmx, render
from corelane.plugins.console.pages.samples import SAMPLES, sample_named
from corelane.plugins.console.pages.snippets import ask_snippets
from corelane.plugins.console.pages.waterfall import lay_out
from corelane.store.jobs.submission import Submission
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.requests import AnswerRequest
from corelane.tasks.question_answering.wire import Answer, AnswerResult

router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

#: The longest time that the page waits for an answer, in seconds: less than htmx does. Then the job's page takes over.
WAIT_S = 25.0

#: Stored contexts that the form offers; others can be named by their ids.
MOST_STORED = 100

#: A candidate that scores less is in the list, but not marked.
LEAST_SCORE = 0.01

#: Form fields that are options of the question, with the type of each value.
OPTION_FIELDS: Mapping[str, type[int] | type[float]] = {
    "top_k": int,
    "max_answer_tokens": int,
    "min_precision": float,
}

#: The empty form. It asks for three answers, as they show more than the best one alone.
EMPTY: dict[str, str] = {
    "question": "",
    "context": "",
    "context_id": "",
    "model": "default",
    "top_k": "3",
    "max_answer_tokens": "",
    "min_precision": "",
    "answers_always": "",
}

#: The form's names for fields of the API.
FIELD_NAMES: Mapping[str, str] = {
    "context": "passage",
    "context_id": "stored context",
    "top_k": "answers",
    "max_answer_tokens": "longest answer",
    "min_precision": "least precision",
}


@router.get("/ask")
async def show_ask(
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    sample: str = "",
    context_id: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show the form, filled in with a sample or a stored context if one is named."""
    chosen = sample_named(sample)
    form = {"question": chosen.question, "context": chosen.context} if chosen else {"context_id": context_id}
    shown: dict[str, Any] = {"form": EMPTY | form, "is_open": False, "sample": sample, "outcome": None, "faults": []}
    return render(request, "ask.html", **shown, **await about_form(state, caller.owner))


@router.post("/ask")
async def ask(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Ask the question of the form, wait for its answer and show it."""
    form = {name: texts[0] for name, texts in (await read_form(request)).items()}
    shown: dict[str, Any] = {"form": EMPTY | form, "is_open": True, "sample": "", "outcome": None, "faults": []}
    if not is_htmx(request):
        shown |= await about_form(state, caller.owner)
    status = 200
    try:
        asked, body = read_question(form)
        shown["outcome"] = await answer(request, state, caller.owner, asked, body)
    except ValidationError as error:
        shown["faults"], status = faults_of(error, FIELD_NAMES), 422
    except CorelaneError as error:
        shown["faults"], status = [error.detail], status_of(error)
    return render(request, "parts/answer.html" if is_htmx(request) else "ask.html", status, **shown)


async def about_form(state: AppState, owner: str) -> dict[str, Any]:
    """Return the choices of the form: samples, stored contexts, models, and if any model is calibrated."""
    stored = await state.store.stored_texts.page(owner, None, MOST_STORED)
    models = [model for model in (await list_models(state)).data if model.state == "open"]
    names = sorted({name for model in models for name in (model.name, *model.aliases)} - {"default"})
    return {
        "samples": SAMPLES,
        "stored": stored.data,
        "models": models,
        "names": ["default", *names],
        "is_any_calibrated": any(model.calibrated for model in models),
    }


def read_question(form: Mapping[str, str]) -> tuple[AnswerRequest, dict[str, Any]]:
    """Return the question of a form, and the JSON body of the same question. Empty fields are left out.

    Raise ValidationError for a value that the API would refuse, InvalidInput for two passages.
    """
    options = {name: number(form[name], kind) for name, kind in OPTION_FIELDS.items() if form.get(name, "").strip()}
    if form.get("answers_always"):
        options["no_answer"] = False
    passage, stored = form.get("context", ""), form.get("context_id", "").strip()
    if passage.strip() and stored:
        raise InvalidInput("give a passage or a stored context, not both")
    body: dict[str, Any] = {"question": form.get("question", "")}
    body |= {"context_id": stored} if stored else {"context": passage}
    if (model := form.get("model", "").strip()) and model != "default":
        body["model"] = model
    defaults = AnswerOptions()
    if chosen := {name: value for name, value in options.items() if value != getattr(defaults, name)}:
        body["options"] = chosen
    return AnswerRequest.model_validate(body), body


def number(text: str, kind: type[int] | type[float]) -> float | str:
    """Return the text as a number; or unchanged if it is not one, so that it is refused."""
    try:
        return kind(text.strip())
    except ValueError:
        return text


def likely(result: AnswerResult | None) -> list[Answer]:
    """Return the answers to mark in the passage: the best one, and others with a sufficient score."""
    answers = result.answers if result and result.answer else []
    return [answer for place, answer in enumerate(answers) if not place or answer.score >= LEAST_SCORE]


async def passage_of(state: AppState, owner: str, asked: AnswerRequest) -> str:
    """Return the passage of a question; empty if its stored context was deleted in the meantime."""
    if asked.context_id is None:
        return asked.context or ""
    return await state.store.stored_texts.text(owner, asked.context_id) or ""


async def answer(
    request: Request, state: AppState, owner: str, asked: AnswerRequest, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Submit the question like the JSON API, wait for its answer, and return what the page shows."""
    head = JobHead(model=asked.model, options=asked.options, priority=asked.priority)
    items = [asked.item]
    wait = CallerWait(min(WAIT_S, state.settings.max_wait_s), request.receive)
    job_id = new_job_id(cell=state.settings.cell)
    submission = Submission(head, owner, items, id=job_id, request=REQUEST_FACTS.get())
    submitted = await state.jobs.submit(submission, wait)
    record = submitted.record
    if wait.has_left and not record.status.is_final:
        await state.store.cancel(record.id)
    found = await state.store.results(record, 0, 1) if record.status.is_final else []
    result = AnswerResult.model_validate(found[0]) if found else None
    job = await state.jobs.describe(record, is_held=submitted.is_held)
    timing = job.timing
    model = next((each for each in (await list_models(state)).data if each.id == job.model), None)
    return {
        "job": job,
        "result": result,
        "pieces": cut(await passage_of(state, owner, asked) if result else "", likely(result)),
        "bars": [] if timing is None else lay_out(timing.model_dump(), timing.wall_s),
        "is_calibrated": model is not None and model.calibrated,
        "snippets": ask_snippets(service_of(request), body),
    }
