"""The requests that make jobs: a body of JSON, or the first line of a job that is sent as lines. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from corelane.domain.contexts import is_context_id, no_context
from corelane.domain.job_references import MAX_URL_CHARS
from corelane.domain.jobs import CallersId, Item, JobHead
from corelane.domain.wire import in_pieces


class LinesHead(JobHead):
    """The first line of a job that is sent as lines."""

    results_window: int | None = Field(
        None,
        ge=1000,
        strict=True,
        description="Pause feeding items while this many results wait for their reader to drop them.",
    )


class JobRequest(JobHead):
    """The body of ``POST /v1/jobs``: many ``items``, or one item's ``question`` and ``context`` in place."""

    input_url: str | None = Field(
        None,
        max_length=MAX_URL_CHARS,
        description="In place of `items`: where they are read from, an `s3` or `https` URL of lines (NDJSON), or of a "
        "JSON document if its name ends in `.json`; packed if it ends in `.gz`. The service allows certain beginnings "
        "only.",
    )
    items: Annotated[list[Item], Field(min_length=1), in_pieces(Item)] | None = Field(
        None, description="The questions of this job."
    )
    id: CallersId | None = Field(None, description="One item's own id, without `items`.")
    question: str | None = Field(None, description="One item's question, without `items`.")
    context: str | None = Field(None, description="One item's passage, without `items`.")
    context_id: CallersId | None = Field(None, description="In place of it: a stored context, or one of `contexts`.")

    @field_validator("items", mode="wrap")
    @classmethod
    def _as_they_came(cls, value: Any, validate: Callable[[Any], Any], info: ValidationInfo) -> Any:
        """Leave items unvalidated if invalid ones should fail alone: ``submitting.items`` then checks each of them."""
        fails_alone = info.data.get("invalid_items") == "fail" and isinstance(value, list) and value
        return value if fails_alone else validate(value)

    @property
    def unchecked(self) -> list[Any] | None:
        """Return the items as they were sent, if invalid ones should fail alone; else None."""
        return self.items if self.invalid_items == "fail" and self.question is None else None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        single = (self.question, self.context, self.context_id, self.id)
        if self.input_url is not None:
            if self.dry_run or self.refuse_if_late or self.items or any(part is not None for part in single):
                raise ValueError("an `input_url` takes no items beside it, no `dry_run` and no `refuse_if_late`")
            return self
        if self.items is not None:
            if any(part is not None for part in single):
                raise ValueError("give either `items` or one `question` with its `context`, not both")
        elif self.question is None or (self.context is None and self.context_id is None):
            raise ValueError("give `items`, or one `question` with its `context` or `context_id`, or an `input_url`")
        else:
            self.items = [Item(id=self.id, question=self.question, context=self.context, context_id=self.context_id)]
        if self.unchecked is None and (missing := next(unknown_contexts(self.items, self.contexts or {}), None)):
            raise ValueError(missing)
        return self


def unknown_contexts(items: Iterable[Item], contexts: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for each item whose ``context_id`` is not in ``contexts`` and no id of a stored context."""
    for index, item in enumerate(items):
        if item.context_id is not None and item.context_id not in contexts and not is_context_id(item.context_id):
            yield f"item {index}: {no_context(item.context_id)}"
