"""The tasks: what their items, options and results are, and which models have them."""

from functools import cache
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.deps import AS_READER, StateDep
from api.errors import documented
from api.routes.fleet import list_models
from corelane.tasks.registry import TASKS

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))


class TaskInfo(BaseModel):
    """One task."""

    object: Literal["task"] = "task"
    name: str = Field(description="That of Hugging Face's pipeline.")
    version: int = Field(description="Version of the forms below.")
    item: dict[str, Any] = Field(description="JSON Schema of an item.")
    options: dict[str, Any] = Field(description="JSON Schema of a job's options.")
    result: dict[str, Any] = Field(description="JSON Schema of a result.")
    example: dict[str, Any] = Field(description="An item.")
    routes: list[str] = Field(description="Its routes in the forms of other services.")
    models: list[str] = Field(description="Versions that have it and take jobs.")


class TaskList(BaseModel):
    """Every task."""

    object: Literal["list"] = "list"
    data: list[TaskInfo]


@cache
def described(name: str) -> TaskInfo:
    """Return a task without its models."""
    task = TASKS[name]
    return TaskInfo(
        name=name,
        version=task.version,
        item=task.item.model_json_schema(),
        options=task.options.model_json_schema(),
        result=task.result.model_json_schema(mode="serialization"),
        example=dict(task.example),
        routes=[each.path for each in task.dialects],
        models=[],
    )


@router.get("/tasks", dependencies=[AS_READER])
async def list_tasks(state: StateDep) -> TaskList:
    """List the tasks: the forms of their items, options and results, and the models that have them."""
    models = [each for each in (await list_models(state)).data if each.state == "open"]
    return TaskList(
        data=[
            described(name).model_copy(update={"models": [each.id for each in models if each.task == name]})
            for name in TASKS
        ]
    )
