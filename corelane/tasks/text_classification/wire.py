"""The wire format of texts that are classified, and of their labels."""

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from corelane.domain.jobs import ERROR, WINDOWS, ItemError, Result, TaskOptions, Text
from corelane.tasks.text import CUT, TextItem

#: How logits become scores.
Function = Literal["softmax", "sigmoid", "none"]


class ClassifiedText(TextItem):
    """One text, or a pair of texts."""

    text_pair: Text | None = Field(None, description="A second text, for models that compare two.")


#: What becomes of a text that is longer than the model reads at once.
Long = Literal["error", "mean", "max", "cut"]


class ClassificationOptions(TaskOptions):
    """The options by which texts are classified."""

    task: ClassVar[str] = "text-classification"
    top_k: int | None = Field(
        None, ge=1, strict=True, description="Labels returned per item, best first; all of them if null."
    )
    function: Function | None = Field(
        None,
        description="How logits become scores; as the model was trained if null: `sigmoid` with one label or several "
        "at a time, `none` for regression, else `softmax`.",
    )
    long: Long = Field(
        "error",
        description="What becomes of a text that is longer than the model reads at once: `error` fails the item, "
        "`mean` and `max` have all of it read in windows and combine their scores, `cut` reads its beginning.",
    )


class Label(BaseModel):
    """One label and its score."""

    label: str
    score: float = Field(description="Between 0 and 1, but for the function `none`, which gives logits.")


class LabelsResult(Result):
    """The outcome of one text."""

    mark: ClassVar[str] = "labels"

    labels: list[Label] = Field(default_factory=list, description="Best first.")
    cut: int | None = CUT
    windows: int = WINDOWS
    error: ItemError | None = ERROR
