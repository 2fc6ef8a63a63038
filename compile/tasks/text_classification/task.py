"""Text classification, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compile.tasks.task import CompileTask, Row
from compile.tasks.texts import SAMPLES
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.errors import ModelRefused
from corelane.tasks.text_classification.task import TextClassification
from corelane.tasks.text_classification.wire import ClassificationOptions, Function


class ClassificationHead(CompileTask):
    """Gives the logits of a row's labels."""

    name = TextClassification.name
    heads: tuple[str, ...] = ("ForSequenceClassification",)
    loader = "AutoModelForSequenceClassification"
    outputs = ("logits",)
    trained_to = "classify texts"
    per_token = False
    short_texts = True
    #: Whether the task's networks have a single label, by which texts are ranked.
    ranks = False

    def is_made_for(self, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> bool:
        """Return whether a model has the head: with one label that ranks texts if ``ranks``, else with other labels."""
        return super().is_made_for(architectures, folder, config) and is_ranker(config) is self.ranks

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the labels, and the function that makes scores of their logits."""
        return {"labels": labels_of(config), "function": function_of(config)}

    def samples(self) -> list[Query]:
        """Return sample texts; those that are too long are read in windows."""
        options = ClassificationOptions(long="mean")
        return [Query(None, text, options) for text in SAMPLES]

    def found(self, parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the best label of each sample, over all its windows."""
        totals: dict[int, Any] = {}
        for rows, (part,) in zip(parts, logits, strict=True):
            for row, (item, _, _) in enumerate(rows):
                totals[item] = totals.get(item, 0) + part[row]
        return {item: int(np.argmax(total)) for item, total in totals.items()}


def labels_of(config: Any) -> list[str]:
    """Return the labels of a network in order; raise ModelRefused if one has no name."""
    names = [config.id2label.get(at) for at in range(config.num_labels)]
    if nameless := [at for at, name in enumerate(names) if not isinstance(name, str | int | float)]:
        raise ModelRefused(
            f"`id2label` of config.json has {len(names)} labels and no name for {nameless[0]}: name each, from 0 on"
        )
    return [str(name) for name in names]


def is_ranker(config: Mapping[str, Any]) -> bool:
    """Return whether a classifier ranks texts: it has a single label, and its config does not say regression."""
    count = len(config.get("id2label") or {}) or int(config.get("num_labels", 2))
    return count == 1 and config.get("problem_type") != "regression"


def function_of(config: Any) -> Function:
    """Return how a model's logits become scores, as Transformers' pipeline decides it."""
    if config.problem_type == "regression":
        return "none"
    return "sigmoid" if config.problem_type == "multi_label_classification" or config.num_labels == 1 else "softmax"


TASK = ClassificationHead()
