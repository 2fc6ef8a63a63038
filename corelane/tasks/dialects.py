"""Dialects: routes with the forms of other services. The folder of a task has the code for its own dialects. Pure.

``api.routes.dialects`` serves all of them, and batches take lines of those that have a ``line``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, create_model, model_validator

from corelane.domain.jobs import CallersId, Item, JobStatus, Priority, TaskOptions, Text
from corelane.domain.wire import MOST_LISTED, Entry, Wire, at_most, in_pieces
from corelane.errors import error_class

#: The field in which requests name a model.
MODEL = Field(None, min_length=1, max_length=200, description="A model version, name or alias.")

#: A parameter that makes other services cut texts.
UNCUT = Field(None, description="Without effect: no text is cut here.")

#: The services whose forms of errors clients read; `tei` is Text Embeddings Inference.
ErrorsOf = Literal["openai", "hugging face", "cohere", "tei"]

#: One text, or several.
Texts = Annotated[
    Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_LISTED), in_pieces(Entry)], at_most(MOST_LISTED)
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for: items of one task, and the options and priority of their job."""

    items: Sequence[Item]
    options: TaskOptions
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class Told:
    """The facts of a job that a reply has in addition to the results. ``tokens`` is None for a line of a batch."""

    id: str
    model: str
    tokens: int | None = None


class Dialect(ABC):
    """One route. Its docstring is the route's description."""

    #: The path and the tag of the route.
    path: str
    tag: str = "dialects"
    #: The form of a request, an example of it, and the type of the reply.
    body: type[Wire]
    example: Mapping[str, Any]
    returns: Any
    #: The form of a batch line's body; None if batches do not accept lines for this route.
    line: type[Wire] | None = None
    #: The service whose form of an error the clients read, in addition to Corelane's.
    errors_of: ErrorsOf
    #: Whether callers know Corelane's jobs and results: a late reply is then the job, and a failed item is a result.
    is_own: bool = False

    @abstractmethod
    def read(self, body: Any) -> Asked:
        """Return what a request, or a batch's line, asks for."""

    @abstractmethod
    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:
        """Return the reply, as models or plain JSON. ``body`` is None for a batch's line."""


class HfDialect(Dialect):
    """A route for Hugging Face's `InferenceClient`, and for callers of their API."""

    errors_of: ErrorsOf = "hugging face"


class TeiDialect(Dialect):
    """A route of Text Embeddings Inference, also below ``/tei/{model}``.

    The first one of a task is also at ``/tei/{model}`` and ``/``, where clients send that have only an address.
    """

    errors_of: ErrorsOf = "tei"

    def kind(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``GET /info`` says of a model of the task, as `model_type`; ``facts`` are the model's own."""
        raise NotImplementedError


@cache
def line_form(dialect: Dialect) -> type[Wire]:
    """Return the form of one line of a batch's input file."""
    fields: dict[str, Any] = {
        "custom_id": (CallersId, Field(min_length=1, description="The caller's own id, once in a file.")),
        "method": (Literal["POST"], "POST"),
        "url": (Literal[dialect.path], dialect.path),
        "body": (dialect.line, ...),
    }
    return create_model("BatchLine", __base__=Wire, **fields)


class Foreign(Wire):
    """A part of a request in another service's form: null stands for nothing given."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value


class PipelineParameters(Foreign):
    """Parameters of a pipeline of Transformers, and the priority of a job."""

    #: Parameters of the pipeline that have no meaning here, and the reasons.
    refused: ClassVar[Mapping[str, str]] = MappingProxyType({})

    priority: Priority = Field(Priority.NORMAL, description="Jobs of higher priority go first.")

    @model_validator(mode="before")
    @classmethod
    def _say_why(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if value[name] is None:
                continue
            if name in cls.refused:
                raise ValueError(f"leave `{name}` out: {cls.refused[name]}")
            if name not in cls.model_fields:
                raise ValueError(f"`{str(name)[:64]}` is not known here; there are {', '.join(cls.model_fields)}")
        return value


class Cuts(Foreign):
    """Parameters by which a text that is too long is cut, because a request asks for it."""

    truncate: bool = Field(False, strict=True, description="Whether a text that is too long is cut at its end.")
    truncation: bool | Literal["longest_first", "only_first", "do_not_truncate"] = Field(
        False, description="The same, as Transformers' pipelines name it."
    )
    truncation_direction: Literal["Right", "right"] = Field("Right", description="A text is cut at its end.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.long_option() == "cut" and getattr(self, "long", "error") not in ("error", "cut"):
            raise ValueError("`truncate` cuts a text, and `long` has all of it read: send one of them")
        return self

    def long_option(self) -> Any:
        """Return the option `long` of the job."""
        cuts = self.truncate or self.truncation not in (False, "do_not_truncate")
        return "cut" if cuts else getattr(self, "long", "error")


class TextParameters(PipelineParameters):
    """Parameters of a pipeline that cuts nothing off."""

    truncation: bool | str | None = UNCUT
    truncate: bool | None = UNCUT
    truncation_direction: str | None = UNCUT


class HfBody(Foreign):
    """What the bodies of Hugging Face's routes have in common."""

    model: str | None = MODEL
    options: Annotated[dict[str, bool], Field(max_length=20), at_most(20)] | None = Field(
        None, description="As `wait_for_model` and `use_cache`: taken, and not used."
    )


def listed(inputs: Any) -> list[Any]:
    """Return inputs as a list."""
    return inputs if isinstance(inputs, list) else [inputs]


def as_given(inputs: str | list[str], replies: Iterator[Any]) -> Any:
    """Return the reply to one text, or the list of replies to several."""
    return next(replies) if isinstance(inputs, str) else list(replies)


def plain(value: Any) -> Any:
    """Return a model in a reply as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError


def require_outputs(results: Sequence[Mapping[str, Any]]) -> None:
    """Raise the error of the first item that has no output."""
    for index, result in enumerate(results):
        if result["status"] != JobStatus.SUCCEEDED:
            where = f"input {index}: " if len(results) > 1 else ""
            error = result["error"] or {"code": "internal", "detail": f"it was {result['status']}"}
            raise error_class(error["code"])(where + error["detail"])
