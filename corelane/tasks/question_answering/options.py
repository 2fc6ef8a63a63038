"""The options by which questions are answered: their wire format and bounds."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from corelane.domain.jobs import TaskOptions
from corelane.domain.wire import at_most
from corelane.tasks.text import OffsetUnit

#: Names that other libraries use for options of a job.
OTHER_NAMES = {"max_answer_len": "max_answer_tokens", "max_answer_length": "max_answer_tokens", "topk": "top_k"}
OTHER_NAMES |= {"handle_impossible_answer": "no_answer", "truncate": "truncation"}


class AnswerOptions(TaskOptions):
    """The options by which questions are answered."""

    hints: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: f"it is `{right}`" for name, right in OTHER_NAMES.items()}
    )
    added: ClassVar[frozenset[str]] = frozenset(
        {"truncation", "max_windows", "max_seq_len", "max_question_len", "align_to_words"}
    )
    top_k: int = Field(
        1, ge=1, le=20, strict=True, description="Answers returned per item, best first, not overlapping."
    )
    max_answer_tokens: int = Field(30, ge=1, le=128, strict=True, description="Longest answer, in tokens.")
    doc_stride: int = Field(
        128, ge=0, le=400, strict=True, description="Overlap of neighbouring windows of a long context, in tokens."
    )
    truncation: Literal["windows", "error"] = Field(
        "windows",
        description="What becomes of an item that is longer than the model reads at once: `windows` has all of it read "
        "in overlapping windows, `error` fails it. Nothing is ever cut off.",
    )
    max_windows: int | None = Field(
        None, ge=1, strict=True, description="An item of more windows than this fails, before the model reads any."
    )
    max_seq_len: int | None = Field(
        None, ge=1, strict=True, description="Longest window with its question, in tokens; as the model has it if null."
    )
    max_question_len: int | None = Field(
        None, ge=1, strict=True, description="Tokens of a question that are read; all of them if null."
    )
    align_to_words: bool = Field(False, strict=True, description="Whether answers are widened to whole words.")
    no_answer: bool = Field(True, strict=True, description="Whether an item may be answered with null.")
    no_answer_threshold: float | None = Field(
        None,
        ge=-1000,
        le=1000,
        description="Null is answered when the null logit exceeds the best answer's logit by more than this; "
        "the model's own threshold if not given, which `GET /v1/models` tells.",
    )
    min_precision: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Only answers whose score is at least this are given, null otherwise: of many answers at least "
        "this share is right. Needs a model that is calibrated, and at most its `highest_precision`.",
    )
    offsets: Annotated[tuple[OffsetUnit, ...], Field(max_length=2), at_most(2)] = Field(
        (),
        description="Further units in which answers carry their offsets; code points are always given.",
    )

    @field_validator("min_precision")
    @classmethod
    def _one_way_to_null(cls, value: float | None, info: ValidationInfo) -> float | None:
        by_threshold = info.data.get("no_answer_threshold") is not None or not info.data.get("no_answer", True)
        if value is not None and by_threshold:
            raise ValueError(
                "`min_precision` decides when null is answered: give no `no_answer_threshold` with it, and "
                "leave `no_answer` on"
            )
        return value
