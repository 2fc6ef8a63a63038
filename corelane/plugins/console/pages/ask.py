"""The Ask page: one item for a model of any task, its result, and the same call with curl or Python."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import AS_READER, StateDep, SubmitCaller
from api.errors import status_of
from api.jobs import CallerWait
from api.request_facts import REQUEST_FACTS
from api.routes.fleet import ModelInfo, choose_model, list_models
from api.state import AppState
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import CorelaneError, NotFound
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.fields import FormField, fields_of, values_of, written
from corelane.plugins.console.pages.forms import faults_of, go_to, read_form, service_of
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import is_htmx, render
from corelane.plugins.console.pages.snippets import task_snippets
from corelane.store.jobs.submission import Submission
from corelane.tasks.forms import forms
from corelane.tasks.presenting import Sample
from corelane.tasks.registry import TASKS
from corelane.tasks.task import Task

router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

#: The longest time that the page waits for a result, in seconds: less than htmx does. Then the job's page takes over.
WAIT_S = 25.0

#: The prefixes of form fields for an item and for options, which may have fields of the same names, as `model`.
ITEM, OPTION = "item.", "options."


@router.get("/ask", dependencies=[AS_READER])
async def show_ask(
    request: Request,
    state: StateDep,
    model: Annotated[str, Query(max_length=200)] = DEFAULT_ALIAS,
    sample: str = "",
) -> Response:
    """Show the form for a model, filled in with a sample or with the item's fields that the address has."""
    models = (await list_models(state)).data
    task = await task_of(state, models, model)
    chosen = next((each for each in samples_of(task) if each.name == sample), None)
    given = request.query_params if chosen is None else {ITEM + name: value for name, value in chosen.item.items()}
    form = {"model": model}
    form |= {each.name: written(given[each.name]) for each in fields_for(task)[0] if each.name in given}
    shown: dict[str, Any] = {"form": form, "is_open": False, "sample": sample, "outcome": None, "faults": []}
    return render(request, "ask.html", **shown, **await about_form(state, models, task))


@router.post("/ask")
async def ask(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Send the item of the form, wait for its result and show it."""
    form = {name: "\n".join(texts) for name, texts in (await read_form(request)).items()}
    models, model = (await list_models(state)).data, form.setdefault("model", DEFAULT_ALIAS).strip() or DEFAULT_ALIAS
    task = await task_of(state, models, model)
    if form.get("task", task.name) != task.name:
        return go_to(request, "ask", model=model)
    shown: dict[str, Any] = {"form": form, "is_open": True, "sample": "", "outcome": None, "faults": [], "task": task}
    if not is_htmx(request):
        shown |= await about_form(state, models, task)
    status = 200
    try:
        item, more = read_item(task, model, form)
        shown["outcome"] = await send(request, state, caller.owner, task, item, more)
    except ValidationError as error:
        shown["faults"], status = faults_of(error, task.present.names), 422
    except CorelaneError as error:
        shown["faults"], status = [error.detail], status_of(error)
    return render(request, "parts/outcome.html" if is_htmx(request) else "ask.html", status, **shown)


async def task_of(state: AppState, models: list[ModelInfo], name: str) -> Task:
    """Return the task of a model, with the forms of its version; for an unknown model, the default task."""
    try:
        return await state.jobs.submitter.tasks.of_model(choose_model(models, name).id)
    except (NotFound, ValueError):
        return TASKS[DEFAULT_TASK]


def samples_of(task: Task) -> list[Sample]:
    """Return items to try a task with."""
    return list(task.present.samples()) or [Sample("example", "Example", task.example)]


def fields_for(task: Task) -> tuple[list[FormField], list[FormField]]:
    """Return the fields of the form for an item, and for options."""
    item, options = task.item.model_json_schema(), task.options.model_json_schema()
    return list(fields_of(item, task.example, ITEM)), list(fields_of(options, {}, OPTION))


async def about_form(state: AppState, models: list[ModelInfo], task: Task) -> dict[str, Any]:
    """Return the choices and the fields of the form: samples, and models with their tasks."""
    fields, options = fields_for(task)
    models = [model for model in models if model.state == "open"]
    names = sorted({name for model in models for name in (model.name, *model.aliases)} - {DEFAULT_ALIAS})
    usual = await task_of(state, models, DEFAULT_ALIAS)
    return {
        "task": task,
        "samples": samples_of(task),
        "models": models,
        "names": [(DEFAULT_ALIAS, usual.name), *((name, choose_model(models, name).task) for name in names)],
        "fields": fields,
        "options": options,
    }


def read_item(task: Task, model: str, form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a form's item, and with it the model and the options that differ from the default."""
    of_item, of_options = fields_for(task)
    item = task.present.asked(values_of(of_item, form))
    options = values_of([field for field in of_options if form.get(field.name, "") != field.default], form)
    return item, ({} if model == DEFAULT_ALIAS else {"model": model}) | ({"options": options} if options else {})


async def send(
    request: Request, state: AppState, owner: str, task: Task, given: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    """Submit the item like the JSON API, wait for its result, and return what the page shows; raise ValidationError."""
    body = forms(task).request.model_validate({"items": [given], **more})
    items = list(body.items or ())
    wait = CallerWait(min(WAIT_S, state.settings.max_wait_s), request.receive)
    job_id = new_job_id(cell=state.settings.cell)
    submission = Submission(body, owner, items, id=job_id, request=REQUEST_FACTS.get())
    submitted = await state.jobs.submit(submission, wait)
    record = submitted.record
    if wait.has_left and not record.status.is_final:
        await state.store.cancel(record.id)
    found = await state.store.results(record, 0, 1) if record.status.is_final else []
    result = task.result.model_validate(found[0]) if found else None
    job = await state.jobs.describe(record, is_held=submitted.is_held)
    model = next((each for each in (await list_models(state)).data if each.id == job.model), None)
    item = items[0]
    return {
        "job": job,
        "result": result,
        "item": item,
        "shown": task.present.shown(item, result),
        "is_calibrated": model is not None and model.calibrated,
        "snippets": task_snippets(service_of(request), task.present.call(given, more)),
    }
