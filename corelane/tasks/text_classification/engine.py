"""Text classification: the logits of each row become the scores of labels."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import JobStatus
from corelane.engine.task import Result, RunnerLimits
from corelane.engine.text.engine import ReadRow, TokenizedText, VectorEngine, cut_off, in_order
from corelane.tasks.text_classification.scores import best_first, combine, scores_of
from corelane.tasks.text_classification.task import TextClassification
from corelane.tasks.text_classification.wire import Function


class ClassificationEngine(VectorEngine):
    """Classifies texts with one model."""

    text_first = True
    overlap = TextClassification.overlap

    labels: Sequence[str] = ()
    function: Function = "softmax"

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read its labels."""
        opened = super().open(artifact, limits, calibration)
        opened.labels, opened.function = artifact.manifest.facts["labels"], artifact.manifest.facts["function"]
        return opened

    def compose(self, item: TokenizedText, decoded: Sequence[ReadRow]) -> Result:
        """Return the labels of a text from the logits of its windows."""
        options: Any = item.query.options
        logits = np.stack([read.values[0] for read in in_order(decoded)])
        scores = combine(scores_of(logits, options.function or self.function), options.long)
        return {
            "status": str(JobStatus.SUCCEEDED),
            "labels": best_first(self.labels, scores, options.top_k),
            "windows": len(decoded),
            "error": None,
            **cut_off(item),
        }
