"""The routes that answer questions: one alone, and as Hugging Face's pipeline did, which transformers 5 removed. Pure.

``{"inputs": {"question", "context"}, "parameters": {…}}`` gives ``{"score", "start", "end", "answer"}``; several
answers, or several inputs, give lists. If "no answer" is allowed, it is an answer with an empty text.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from corelane.domain.jobs import CallersId, Priority, Text
from corelane.domain.wire import MOST_LISTED, Wire, at_most, in_pieces
from corelane.tasks.dialects import Asked, Dialect, HfBody, HfDialect, PipelineParameters, Told
from corelane.tasks.forms import misplaced
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import AnswerResult, Question


class LineBody(Wire):
    """One question with its passage, model and options: the body of a batch's line."""

    hints: ClassVar[Mapping[str, str]] = misplaced(AnswerOptions)
    id: CallersId | None = Field(None, description="The caller's own id, returned with the result.")
    question: Text = Field(description="The question.")
    context: Text = Field(description="The passage the answer is taken from, of any length.")
    model: str = Field("default", min_length=1, max_length=200, description="A model version, name or alias.")
    options: AnswerOptions = Field(default_factory=cache(AnswerOptions), description="How the question is answered.")

    @property
    def item(self) -> Question:
        """Return the question and its passage as an item of a job."""
        return Question(id=self.id, question=self.question, context=self.context)


class AnswerRequest(LineBody):
    """The body of ``POST /v1/answers``: that of a batch's line, with a ``priority``."""

    priority: Priority = Field(Priority.NORMAL, description="Questions of higher priority are answered first.")


class Answers(Dialect):
    """Answer one question, within a minute or as long as asked to wait; 202 with its job if that is not enough."""

    path, tag, body, line, returns = "/v1/answers", "answers", AnswerRequest, LineBody, AnswerResult
    example: Mapping[str, Any] = MappingProxyType(
        {"question": "How tall is the tower?", "context": "The tower is 330 metres tall."}
    )
    errors_of, is_own = "openai", True

    def read(self, body: LineBody) -> Asked:
        """Return the question."""
        if not isinstance(body, AnswerRequest):
            return Asked([body.item], body.options)
        return Asked([body.item], body.options, body.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the result, whatever it is."""
        return {**results[0], "index": 0}


class HfInput(Wire):
    """One question about one passage."""

    question: Text
    context: Text


class HfParameters(PipelineParameters):
    """The pipeline's own parameters and defaults, and the priority of a job."""

    refused: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "padding": "padding is the service's own affair",
            "topk": "it is `top_k` now",
            "handle_long_context": "all of the context is read, always",
        }
    )

    top_k: int = Field(1, ge=1, le=20, strict=True, description="Answers per question, best first.")
    max_answer_len: int = Field(15, ge=1, le=128, strict=True, description="Longest answer, in tokens.")
    doc_stride: int = Field(128, ge=0, le=400, strict=True, description="Overlap of windows, in tokens.")
    max_seq_len: int | None = Field(
        None, ge=1, strict=True, description="Longest window with its question, in tokens; the model's own if null."
    )
    max_question_len: int | None = Field(
        None, ge=1, strict=True, description="Tokens of a question that are read; all of them if null."
    )
    align_to_words: bool = Field(False, strict=True, description="Whether answers are widened to whole words.")
    truncation: Literal["windows", "error"] = Field(
        "windows", description="`error` fails a context that is longer than one window; the pipeline has no such thing."
    )
    max_windows: int | None = Field(None, ge=1, strict=True, description="A context of more windows fails.")
    handle_impossible_answer: bool = Field(False, strict=True, description="Whether no answer is an answer.")

    @model_validator(mode="after")
    def _stride_fits(self) -> Self:
        # The default is cut to half a window, as the pipeline's is.
        if "doc_stride" in self.model_fields_set and self.doc_stride > (self.max_seq_len or self.doc_stride):
            raise ValueError(f"`doc_stride` ({self.doc_stride}) is larger than `max_seq_len` ({self.max_seq_len})")
        return self

    @property
    def options(self) -> AnswerOptions:
        """Return the parameters as a job's options."""
        return AnswerOptions(
            top_k=self.top_k,
            max_answer_tokens=self.max_answer_len,
            doc_stride=self.doc_stride,
            max_seq_len=self.max_seq_len,
            max_question_len=self.max_question_len,
            align_to_words=self.align_to_words,
            truncation=self.truncation,
            max_windows=self.max_windows,
            no_answer=self.handle_impossible_answer,
        )


class HfRequest(HfBody):
    """The body of ``POST /v1/hf/question-answering``."""

    hints: ClassVar[Mapping[str, str]] = MappingProxyType(
        dict.fromkeys(HfParameters.model_fields, "it belongs into `parameters`")
    )

    inputs: (
        HfInput | Annotated[list[HfInput], Field(max_length=MOST_LISTED), in_pieces(HfInput), at_most(MOST_LISTED)]
    ) = Field(description="One question with its context, or a list of them.")
    parameters: HfParameters = Field(default_factory=HfParameters, description="As the pipeline took them.")

    @model_validator(mode="after")
    def _asks_something(self) -> "HfRequest":
        if not self.asked:
            raise ValueError("`inputs` is empty; send at least one question")
        return self

    @property
    def asked(self) -> list[HfInput]:
        """Return the inputs as a list."""
        return self.inputs if isinstance(self.inputs, list) else [self.inputs]


class HfAnswer(BaseModel):
    """One answer: ``context[start:end] == answer``."""

    score: float
    start: int
    end: int
    answer: str


def answers_of(result: AnswerResult, parameters: HfParameters) -> HfAnswer | list[HfAnswer]:
    """Return a result as the pipeline did: one answer, or a list if ``top_k`` asks for several."""
    found = [HfAnswer(score=each.score, start=each.start, end=each.end, answer=each.text) for each in result.answers]
    if parameters.handle_impossible_answer or not found:
        none = HfAnswer(score=result.no_answer_score or 0.0, start=0, end=0, answer="")
        # The decision goes first, whatever the scores are: a threshold may overrule them.
        found = sorted([*found, none], key=lambda each: -each.score)
        decided = none if result.answer is None else next(each for each in found if each is not none)
        found.remove(decided)
        found.insert(0, decided)
    found = found[: parameters.top_k]
    return found[0] if parameters.top_k == 1 else found


class HfAnswers(HfDialect):
    """Answer as transformers' question-answering pipeline did, for its former users."""

    path, body, returns = "/v1/hf/question-answering", HfRequest, HfAnswer | list[HfAnswer | list[HfAnswer]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": dict(Answers.example)})

    def read(self, body: HfRequest) -> Asked:
        """Return the questions."""
        items = [Question(question=each.question, context=each.context) for each in body.asked]
        return Asked(items, body.parameters.options, body.parameters.priority)

    def reply(self, body: HfRequest, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the answers in the form of the inputs."""
        found = [answers_of(AnswerResult.model_validate(each), body.parameters) for each in results]
        return found if isinstance(body.inputs, list) else found[0]
