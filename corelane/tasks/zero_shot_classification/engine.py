"""Zero-shot classification: how much a text entails the sentence of each label becomes the label's score.

A long text is cut at the same places for all labels, as the longest sentence needs it. So all labels get all windows.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import JobStatus
from corelane.engine.task import Query, Result, RunnerLimits, Window
from corelane.engine.text.engine import ReadRow, TextPart, TokenizedText, Tokens, VectorEngine
from corelane.engine.text.tokenize import TextTokens
from corelane.errors import InvalidInput
from corelane.tasks.text_classification.scores import Doubles, best_first, combine, scores_of
from corelane.tasks.zero_shot_classification.task import NO_LABELS, ZeroShotClassification, labels_of


class ZeroShotEngine(VectorEngine):
    """Judges labels with one model for natural-language inference."""

    text_first = True
    overlap = ZeroShotClassification.overlap

    #: The places of contradiction and entailment among a row's logits.
    contradiction = 0
    entailment = -1

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read which logits are contradiction and entailment."""
        opened, facts = super().open(artifact, limits, calibration), artifact.manifest.facts
        opened.contradiction, opened.entailment = facts["contradiction"], facts["entailment"]
        return opened

    def refusal(self, query: Query) -> InvalidInput | None:
        """Return the error of a text without labels; None if there are labels."""
        return None if labels_of(query.beside, query.options) else InvalidInput(NO_LABELS)

    def besides(self, query: Query) -> Sequence[str]:
        """Return the sentence of each label."""
        template = query.options.hypothesis_template
        return [template.replace("{}", label) for label in labels_of(query.beside, query.options)]

    def cut(self, query: Query, besides: Sequence[Tokens], texts: Sequence[TextTokens]) -> TokenizedText:
        """Cut the text to fit with the longest sentence; give each sentence all the windows. Raise InvalidInput."""
        longest = max(besides, key=len)
        stretches = super().cut(query, [longest], texts).windows
        self._require_few(len(besides) * len(stretches))
        windows = [
            Window(each.start, each.end, each.length - len(longest) + len(beside), number)
            for number, beside in enumerate(besides)
            for each in stretches
        ]
        return TokenizedText(query, [TextPart(beside, texts[0]) for beside in besides], windows)

    def compose(self, item: TokenizedText, decoded: Sequence[ReadRow]) -> Result:
        """Return the labels of a text from the logits of its rows."""
        labels = labels_of(item.query.beside, item.query.options)
        starts = {start: at for at, start in enumerate(sorted({read.window.start for read in decoded}))}
        judged = np.empty((len(labels), len(starts), 2))
        for read in decoded:
            (logits,) = read.values
            judged[read.window.part, starts[read.window.start]] = logits[self.contradiction], logits[self.entailment]
        return {
            "status": str(JobStatus.SUCCEEDED),
            "labels": best_first(labels, score_labels(judged, item.query.options), None),
            "windows": len(decoded),
            "error": None,
        }


def score_labels(judged: Doubles, options: Any) -> Doubles:
    """Return the score of each label; ``judged`` is labels × windows × 2 logits: contradiction and entailment."""
    if options.multi_label or len(judged) == 1:
        scores = scores_of(judged, "softmax")[:, :, 1]
    else:
        scores = scores_of(judged[:, :, 1].T, "softmax").T
    return combine(scores.T, options.long)
