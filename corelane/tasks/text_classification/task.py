"""Text classification as a task."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from corelane.tasks.task import Bounds, Parts
from corelane.tasks.text import TextTask, check_beside
from corelane.tasks.text_classification.dialects import HfLabels, TeiLabels
from corelane.tasks.text_classification.present import LabelsPresenter
from corelane.tasks.text_classification.wire import ClassificationOptions, ClassifiedText, LabelsResult

#: Labels shown in one line.
SHOWN = 5


class LabelsTask(TextTask):
    """A task whose results are labels, best first."""

    result = LabelsResult
    nothing: Mapping[str, Any] = MappingProxyType({"labels": []})

    def columns(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first label of a result and its score, and all labels if there are several, by column."""
        labels = result["labels"]
        first = labels[0] if labels else {"label": None, "score": None}
        return {**first, "labels": labels} if len(labels) > 1 else {**first}

    def line(self, result: Mapping[str, Any]) -> str:
        """Return the first labels of a result and their scores, in one line."""
        shown = [f"{each['label']} {each['score']:.3f}" for each in result["labels"][:SHOWN]]
        rest = len(result["labels"]) - len(shown)
        return ", ".join(shown + ([f"{rest} more"] if rest else [])) or "no labels"


class TextClassification(LabelsTask):
    """Gives the labels of a text, or of a pair of texts."""

    name = ClassificationOptions.task
    item = ClassifiedText
    options = ClassificationOptions
    beside = (str, type(None))
    example: Mapping[str, Any] = MappingProxyType({"text": "The room was clean and the staff were kind."})
    dialects = (HfLabels(), TeiLabels())
    engine = "corelane.tasks.text_classification.engine:ClassificationEngine"
    present = LabelsPresenter()

    def parts(self, item: ClassifiedText) -> Parts:
        """Return the second text, and the text."""
        return item.text_pair, item.text, None

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of a text, or of a pair."""
        return {"text": text} if beside is None else {"text": text, "text_pair": beside}

    def check(self, bounds: Bounds, place: str, item: ClassifiedText) -> None:
        """Raise TooLarge for a text that is too long."""
        super().check(bounds, place, item)
        if item.text_pair is not None:
            check_beside(bounds, place, "the second text", item.text_pair)
