"""The requests that make jobs of one task: those of ``domain.job_requests`` with its items and options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from corelane.domain.job_requests import JobRequest, LinesHead
from corelane.domain.jobs import Item, JobHead, TaskOptions
from corelane.domain.wire import MOST_ROWS, Wire, in_pieces
from corelane.errors import InvalidInput
from corelane.errors.sentences import first_fault
from corelane.tasks.dialects import MODEL, Asked, Dialect, Told
from corelane.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Forms:
    """The two forms of a job: its first line, without items, if sent as lines; its whole body, if sent as JSON."""

    head: type[LinesHead]
    request: type[JobRequest]


def misplaced(options: type[TaskOptions]) -> Mapping[str, str]:
    """Return hints for options that a caller put next to `options` instead of into it, by each of their names."""
    inside = dict.fromkeys(options.model_fields, "it belongs into `options`")
    return MappingProxyType(inside | {name: f"{hint}, in `options`" for name, hint in options.hints.items()})


def form_of(task: Task) -> str:
    """Return what items of a task look like, as the end of a sentence."""
    return f"items for {task.name}, such as {orjson.dumps(dict(task.example)).decode()}"


@cache
def forms(task: Task) -> Forms:
    """Return the requests that make jobs of a task."""
    return Forms(_form(task, LinesHead), _form(task, JobRequest))


def _form(task: Task, base: type[JobHead]) -> Any:
    fields: dict[str, Any] = {
        "options": (task.options, Field(default_factory=task.options, description="How the items are read."))
    }
    # A job's own fields are no options, whatever those are called.
    hints = {name: hint for name, hint in misplaced(task.options).items() if name not in base.model_fields}
    inside: dict[str, Any] = {"hints": MappingProxyType(hints)}
    if issubclass(base, JobRequest):
        bounds = Field(min_length=1, max_length=MOST_ROWS)
        items = Annotated[list[task.item], bounds, in_pieces(task.item)]  # type: ignore[name-defined]
        fields["items"] = items | None, Field(None, description="The items of this job.")
        in_place = _in_place(task.item, base)
        fields |= in_place
        inside |= {"item": task.item, "in_place": tuple(in_place), "rows_by": task.rows_by}
    name = "".join(part.title() for part in task.name.split("-")) + base.__name__
    made = create_model(name, __base__=(task.shares, base) if task.shares else base, **fields)
    for name, value in inside.items():
        setattr(made, name, value)
    return made


def _in_place(item: type[Item], base: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of an item that a request may have in place, all optional.

    A field that a job has itself cannot be given in place.
    """
    return {
        name: (
            Annotated[(field.annotation | None, *field.metadata, "in place")],
            Field(None, description=f"Without `items`: {field.description}"),
        )
        for name, field in item.fields_in_place().items()
        if name not in base.model_fields
    }


class PredictBody(Wire):
    """The body of ``POST /v1/predict``: beside these, the fields of one item of the model's task."""

    model_config = ConfigDict(extra="allow")
    model: str | None = MODEL
    options: dict[str, Any] = Field(default_factory=dict, description="Those of a job of the model's task.")


class Predict(Dialect):
    """Have one item of any task done, and return its result; 202 with its job if that takes longer than you wait."""

    path, tag, body, line, returns = "/v1/predict", "predict", PredictBody, PredictBody, dict[str, Any]
    errors_of, is_own = "openai", True

    def __init__(self, task: Task) -> None:
        self._task, self.example = task, task.example

    def read(self, body: PredictBody) -> Asked:
        """Return the item; raise InvalidInput that says what an item of the task looks like."""
        form = forms(self._task).request
        try:
            job = form.model_validate({"items": [body.model_extra], "options": body.options})
        except ValidationError as error:
            fault, wanted = first_fault(error, form).removeprefix("items.0."), form_of(self._task)
            raise InvalidInput(f"{fault}; this model takes {wanted}") from None
        return Asked(job.items or (), job.options)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the result, whatever it is."""
        return {name: each for name, each in results[0].items() if name != "index"}
