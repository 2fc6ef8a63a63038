"""Results of items without an output, and results that name their model version. Pure."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field, create_model

from corelane.domain.jobs import ItemError, JobStatus, Result
from corelane.tasks.registry import task_named


@cache
def _with_model(form: type[Result]) -> Any:
    field = Field(None, description="The model version that was asked; null if none was.")
    return create_model(f"Model{form.__name__}", __base__=form, model=(str | None, field))


def model_result(result: Result | Mapping[str, Any], model: str | None) -> Result:
    """Return a result of a bulk call with the model version that was asked: its callers do not see the jobs."""
    found = result if isinstance(result, Result) else Result.model_validate(result)
    made: Result = _with_model(type(found)).model_validate(vars(found) | {"model": model})
    return made


def with_place(error: ItemError | None, place: str) -> ItemError | None:
    """Return an item's error with its place in a whole input: the service counts the items of each job."""
    return error and error.model_copy(update={"detail": re.sub(r"^item \d+", place, error.detail)})


def failed_result(task: str, index: int, item_id: str | None, code: str, detail: str) -> dict[str, Any]:
    """Return a failed item's result in stored form."""
    return unanswered_result(task, index, item_id, JobStatus.FAILED) | {"error": {"code": code, "detail": detail}}


def unanswered_result(task: str, index: int, item_id: str | None, status: JobStatus) -> dict[str, Any]:
    """Return the result of an item that ended without an output, in stored form."""
    return {
        "index": index,
        "id": item_id,
        "status": str(status),
        **task_named(task).nothing,
        "windows": 0,
        "error": None,
    }
