"""The routes of Text Embeddings Inference: what a model is, whether it serves, and its dialects below ``/tei/{model}``.

Its clients have one address for one model. Here that address is ``/tei/{model}``; without it, the model is chosen as
other dialects choose it.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api.deps import AS_READER, StateDep
from api.errors import TEI_PREFIX, documented
from api.reading import PlainRoute, Prefer, Wait
from api.requests import SubmitRequest, faults_of_body
from api.routes.dialects import ModelInAddress, handler_of, respond
from api.routes.health import Health, ready
from api.state import AppState
from corelane import __version__
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.errors import NotReady, UnknownModel, WrongTask
from corelane.submitting.model_tasks import task_of
from corelane.tasks.dialects import TeiDialect
from corelane.tasks.registry import DIALECTS, TASKS

hot = APIRouter(route_class=PlainRoute)
router = APIRouter(tags=["dialects"])

#: Paths that also lead to one model, in addition to those of Text Embeddings Inference.
ALSO = ("/v1/embeddings",)


#: By task, the dialect at a model's bare address: its first one of Text Embeddings Inference.
MAIN = {task.name: each for task in TASKS.values() for each in reversed(task.dialects) if isinstance(each, TeiDialect)}


def main_dialect(task: str, model: str) -> TeiDialect:
    """Return the dialect at the bare address of a task's models; raise WrongTask if there is none."""
    if task not in MAIN:
        raise WrongTask(f"{model} is a model for {task}, which has no route here: name another as `/tei/{{model}}`")
    return MAIN[task]


async def model_meant(state: AppState, named: str | None) -> str:
    """Return the model that is named; else the default one if it has routes here, else the only one that has."""
    tasks = state.jobs.submitter.tasks
    if named or (await tasks.of_model(DEFAULT_ALIAS, again=True)).name in MAIN:
        return named or DEFAULT_ALIAS
    others = {await tasks.default_of(task) for task in MAIN} - {DEFAULT_ALIAS}
    return others.pop() if len(others) == 1 else DEFAULT_ALIAS


async def version_meant(state: AppState, model: str) -> str:
    """Return the version that a model's name means; raise UnknownModel."""
    tasks = state.jobs.submitter.tasks
    if (version := await tasks.version_of(model)) is None:
        raise UnknownModel(await tasks.no_model(model))
    return version


@router.get("/info", dependencies=[AS_READER], responses=documented(403, 404, 422, 424, 503))
@router.get("/tei/{model}/info", dependencies=[AS_READER], include_in_schema=False)
async def info(request: Request, state: StateDep, named: ModelInAddress = None) -> dict[str, Any]:
    """Say what a model is: the one named, or the default. Texts are cut only if a request asks for it."""
    version = await version_meant(state, await model_meant(state, request.path_params.get("model") or named))
    summary = await state.fleet.summary(version)
    dialect = main_dialect(task_of(summary), version)
    sizes = [[int(side) for side in bucket.split("x")] for bucket in summary["buckets"]]
    return {
        "model_id": summary["name"],
        "model_sha": version,
        "model_dtype": summary["dtype"],
        "model_type": dialect.kind(summary.get("facts") or {}),
        "max_concurrent_requests": state.settings.max_outstanding_tokens // max(1, summary["max_length"]),
        "max_input_length": summary["max_length"],
        "max_batch_tokens": max((rows * length for rows, length in sizes), default=0),
        "max_client_batch_size": state.settings.max_items,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": __version__,
    }


@router.get("/health", responses=documented(503))
async def health(state: StateDep) -> Health:
    """Say whether an item sent now would be answered, as ``GET /readyz`` does, without details."""
    await ready(state)
    return Health()


@router.get("/tei/{model}/health", dependencies=[AS_READER], include_in_schema=False)
async def health_of_model(state: StateDep, model: str) -> Health:
    """Say whether a core holds the model."""
    if (outlook := await state.fleet.outlook(await version_meant(state, model))) is not None:
        raise NotReady(outlook.reason)
    return Health()


@hot.post("/", include_in_schema=False)
@hot.post("/tei/{model}", include_in_schema=False)
async def ask_model(
    request: SubmitRequest,
    body: Annotated[dict[str, Any], Body()],
    named: ModelInAddress = None,
    wait: Wait = None,
    prefer: Prefer = None,
) -> Response:
    """Reply as the main route of the model's task does."""
    model = request.path_params.get("model") or await model_meant(request.app_state, named)
    task = await request.app_state.jobs.submitter.tasks.of_model(model)
    dialect = main_dialect(task.name, model)
    try:
        read = await asyncio.to_thread(dialect.body.model_validate, body)
    except ValidationError as error:
        raise RequestValidationError(faults_of_body(error)) from None
    return await respond(dialect, request, read, request.waits(wait, prefer), model)


for each in DIALECTS.values():
    if isinstance(each, TeiDialect) or each.path in ALSO:
        hot.post(f"{TEI_PREFIX}{{model}}{each.path}", include_in_schema=False)(handler_of(each))
