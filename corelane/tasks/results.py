"""Results that say which model gave them. Pure."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field, create_model

from corelane.domain.jobs import Result


@cache
def _with_model(form: type[Result]) -> Any:
    field = Field(None, description="The model version that was asked; null if none was.")
    return create_model(f"Model{form.__name__}", __base__=form, model=(str | None, field))


def model_result(result: Result | Mapping[str, Any], model: str | None) -> Result:
    """Return a result of a bulk, whose jobs nobody looks at, with the model version that was asked."""
    found = result if isinstance(result, Result) else Result.model_validate(result)
    made: Result = _with_model(type(found)).model_validate(vars(found) | {"model": model})
    return made
