"""The wire format of texts that are classified by the caller's own labels."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from corelane.domain.jobs import TaskOptions, Text
from corelane.domain.wire import at_most
from corelane.tasks.text import TextItem

#: Labels that a text may have, each once.
Labels = Annotated[
    tuple[Annotated[Text, Field(max_length=1000)], ...], Field(min_length=1, max_length=100), at_most(100)
]


def _has_a_place(value: str) -> str:
    if "{}" not in value:
        raise ValueError("`hypothesis_template` needs `{}`, the place of the label")
    return value


Template = Annotated[
    str,
    Field(
        min_length=2,
        max_length=1000,
        description="The sentence that the model judges for each label, which stands in place of `{}`.",
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
