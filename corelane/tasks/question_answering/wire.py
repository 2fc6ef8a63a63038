"""The wire format of questions and answers."""

from typing import ClassVar, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from corelane.domain.jobs import ERROR, UNLESS_NULL, WINDOWS, CallersId, Item, ItemError, Result, not_blank
from corelane.tasks.text import Offsets


class Question(Item):
    """One question about one passage."""

    question: str = Field(min_length=1, description="The question.")
    context: str | None = Field(None, min_length=1, description="The passage the answer is taken from, of any length.")
    context_id: CallersId | None = Field(
        None,
        min_length=1,
        description="In place of `context`: the id of one of the job's `contexts`.",
    )

    @field_validator("question", "context")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        return not_blank(value) if value is not None else None

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        if (self.context is None) == (self.context_id is None):
            raise ValueError("give a `context`, or in its place the `context_id` of one of the job's `contexts`")
        return self


class Answer(BaseModel):
    """A stretch of the context: ``context[start:end] == text``, offsets in Unicode code points."""

    text: str
    start: int = Field(ge=0, description="First code point of the answer in the context.")
    end: int = Field(ge=0, description="One past the last code point.")
    score: float = Field(
        ge=0,
        le=1,
        description="Share of the model's belief, over all spans and `no answer`; with a calibrated model the "
        "probability that the answer is right.",
    )
    offsets: Offsets | None = Field(None, **UNLESS_NULL, description="With the option `offsets` only.")


class AnswerResult(Result):
    """The outcome of one question."""

    mark: ClassVar[str] = "answers"

    answer: Answer | None = Field(None, description="The best answer; null if there is none in the context.")
    answers: list[Answer] = Field(default_factory=list, description="At most top_k candidates, best first.")
    no_answer_score: float | None = Field(
        None, description="Share of the model's belief that there is no answer; calibrated, the probability of it."
    )
    windows: int = WINDOWS
    error: ItemError | None = ERROR
