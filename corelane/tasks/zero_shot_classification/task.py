"""Zero-shot classification as a task: for each label there is a row, of the text and the label as a sentence."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from corelane.domain.dispatch import LEAST_TOKENS, measure, rows_tokens
from corelane.errors import InvalidInput
from corelane.tasks.task import Parts
from corelane.tasks.text_classification.present import LabelsPresenter
from corelane.tasks.text_classification.task import LabelsTask
from corelane.tasks.zero_shot_classification.dialects import HfOwnLabels
from corelane.tasks.zero_shot_classification.wire import LabelledText, ZeroShotOptions, require_short

#: The error of an item without labels whose job has none either.
NO_LABELS = "there are no labels to choose from: give `labels` with the text, or in the job's `options`"


def labels_of(beside: Any, options: ZeroShotOptions) -> Sequence[str]:
    """Return the labels of a text: its own, or those of its job."""
    return beside or options.labels or ()


@lru_cache(maxsize=1)
def sentences_of(labels: Sequence[str], template: str) -> tuple[int, float, float]:
    """Return how many sentences labels make, the estimated tokens of all sentences, and those of the longest. Cached.

    The sentences themselves are not made: 100 of them may have 100,000 characters.
    """
    around = measure(template)
    longest = measure(max(labels, key=len, default=""))
    return len(labels), len(labels) * around + measure("".join(labels)), around + longest


class OwnLabelsPresenter(LabelsPresenter):
    """Shows labels as classification does."""

    about = "One text, and labels of your own. The model says how well each of them fits."


class ZeroShotClassification(LabelsTask):
    """Says which of the caller's own labels fit a text."""

    name = ZeroShotOptions.task
    item = LabelledText
    options = ZeroShotOptions
    beside = (list, type(None))
    rows_by = "labels"
    example: Mapping[str, Any] = MappingProxyType({"text": "The parcel never came.", "labels": ["delivery", "price"]})
    dialects = (HfOwnLabels(),)
    #: The example gives the labels once, in the options, for all texts of the job.
    job_examples: Mapping[str, Mapping[str, Any]] = MappingProxyType(
        {
            ZeroShotOptions.task: {
                "summary": "One text for a model of the task zero-shot-classification, and the labels of all texts",
                "value": {
                    "model": ZeroShotOptions.task,
                    "text": "The parcel never came.",
                    "options": {"labels": ["delivery", "price"]},
                },
            }
        }
    )
    engine = "corelane.tasks.zero_shot_classification.engine:ZeroShotEngine"
    present = OwnLabelsPresenter()

    def parts(self, item: LabelledText) -> Parts:
        """Return the labels, and the text."""
        return None if item.labels is None else list(item.labels), item.text, None

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of a text."""
        return {"text": text} if beside is None else {"text": text, "labels": beside}

    def tokens(self, beside: Any, text: str, options: ZeroShotOptions) -> int:
        """Estimate the tokens of the rows of all labels."""
        return self.tokens_of(beside, measure(text), options)

    def tokens_of(self, beside: Any, text_tokens: float, options: ZeroShotOptions) -> int:
        """Estimate as ``tokens`` does, from the text's estimated tokens instead of the text."""
        rows, tokens, longest = sentences_of(tuple(labels_of(beside, options)), options.hypothesis_template)
        return max(LEAST_TOKENS, math.ceil(rows_tokens(text_tokens, rows, tokens, longest, self.overlap)))

    def check_options(self, options: ZeroShotOptions, place: str, item: LabelledText) -> None:
        """Raise InvalidInput for a text without labels, or with a label that is too long for the job's template."""
        if not (labels := labels_of(item.labels, options)):
            raise InvalidInput(place + NO_LABELS)
        if item.labels is not None:
            try:
                require_short(labels, options.hypothesis_template)
            except ValueError as error:
                raise InvalidInput(f"{place}{error}") from None
