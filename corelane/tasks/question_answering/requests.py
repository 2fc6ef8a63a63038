"""Requests that ask one question: the body of ``POST /v1/answers``, and a line of a batch."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, model_validator

from corelane.domain.jobs import CallersId, Priority, Text
from corelane.domain.texts import is_text_id
from corelane.domain.wire import Wire
from corelane.tasks.forms import misplaced
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question


class LineBody(Wire):
    """One question with its passage, model and options: the body of a batch's line."""

    hints: ClassVar[Mapping[str, str]] = misplaced(AnswerOptions)
    id: CallersId | None = Field(None, description="The caller's own id, returned with the result.")
    question: Text = Field(description="The question.")
    context: Text | None = Field(None, description="The passage the answer is taken from, of any length.")
    context_id: CallersId | None = Field(None, description="In place of it: a stored context, `ctx_…`.")
    model: str = Field("default", min_length=1, max_length=200, description="A model version, name or alias.")
    options: AnswerOptions = Field(default_factory=AnswerOptions, description="How the question is answered.")

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        if (self.context is None) == (self.context_id is None):
            raise ValueError("give a `context`, or the `context_id` of a stored one")
        if self.context_id is not None and not is_text_id(self.context_id):
            raise ValueError("`context_id` must name a stored context: `ctx_` and 64 digits")
        return self

    @property
    def item(self) -> Question:
        """Return the question and its passage as an item of a job."""
        return Question(id=self.id, question=self.question, context=self.context, context_id=self.context_id)


class AnswerRequest(LineBody):
    """The body of ``POST /v1/answers``: that of a batch's line, with ``priority`` and ``reuse``."""

    priority: Priority = Field(Priority.NORMAL, description="Questions of higher priority are answered first.")
    reuse: bool = Field(
        True,
        strict=True,
        description="Whether an answer to an equal question of yours may be taken, and this one's be given to others.",
    )
