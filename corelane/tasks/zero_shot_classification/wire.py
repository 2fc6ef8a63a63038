"""The wire format of texts that are classified by the caller's own labels."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from corelane.domain.jobs import TaskOptions, Text
from corelane.domain.wire import at_most
from corelane.tasks.text import TextItem

#: Most characters of the sentence of a label.
MOST_CHARS = 1000


def _each_once(labels: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(labels)) < len(labels):
        twice = next(label for at, label in enumerate(labels) if label in labels[:at])
        raise ValueError(f"the label {twice[:64]!r} is there twice: give each label once")
    return labels


#: Labels that a text may have, each once.
Labels = Annotated[
    tuple[Annotated[Text, Field(max_length=MOST_CHARS)], ...],
    Field(min_length=1, max_length=100),
    AfterValidator(_each_once),
    at_most(100),
]


def _has_a_place(value: str) -> str:
    if value.count("{}") != 1:
        raise ValueError("`hypothesis_template` has `{}`, the place of the label, exactly once")
    return value


def require_short(labels: Sequence[str], template: str) -> None:
    """Raise ValueError if the sentence of a label would be too long."""
    longest = max(map(len, labels))
    if longest + len(template) > MOST_CHARS:
        raise ValueError(
            f"`hypothesis_template` has {len(template):,} characters and the longest label {longest:,}, of "
            f"{MOST_CHARS:,} that both may have together: shorten one of them"
        )


Template = Annotated[
    str,
    Field(
        min_length=2,
        max_length=MOST_CHARS,
        description="The sentence that the model judges for each label, which stands in place of the only `{}`. It has "
        "at most 1,000 characters together with the longest label.",
    ),
    AfterValidator(_has_a_place),
]


class LabelledText(TextItem):
    """One text, and the labels that it may have."""

    labels: Labels | None = Field(None, description="The labels to choose from; those of the job's options if null.")


class ZeroShotOptions(TaskOptions):
    """The options by which texts are classified by the caller's own labels."""

    task: ClassVar[str] = "zero-shot-classification"
    labels: Labels | None = Field(None, description="The labels of items that have none of their own.")
    hypothesis_template: Template = "This example is {}."
    multi_label: bool = Field(
        False, strict=True, description="Whether several labels may be right, so that each is scored by itself."
    )
    long: Literal["error", "mean", "max"] = Field(
        "error", description="What becomes of a text that is longer than the model reads at once, as in classification."
    )

    @model_validator(mode="after")
    def _short_sentences(self) -> Self:
        if self.labels is not None:
            require_short(self.labels, self.hypothesis_template)
        return self
