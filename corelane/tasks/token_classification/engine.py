"""Token classification: the logits of each token become entities. Of overlapping windows the most central counts."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import JobStatus
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Result, RunnerLimits, Window
from corelane.engine.text.engine import ReadRow, TextEngine, TokenizedText
from corelane.engine.text.offsets import convert_offsets
from corelane.engine.text.tokenize import TextTokens
from corelane.tasks.token_classification.entities import Scores, find_entities, softmax
from corelane.tasks.token_classification.task import TokenClassification

#: Decimals of a score in a result.
SCORE_DIGITS = 6


class EntityEngine(TextEngine):
    """Finds entities with one model."""

    overlap = TokenClassification.overlap

    labels: Sequence[str] = ()
    #: The id of the unknown token; None if there is none.
    unknown: int | None = None

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read its labels."""
        opened = super().open(artifact, limits, calibration)
        facts = artifact.manifest.facts
        opened.labels, opened.unknown = facts["labels"], facts["unknown"]
        return opened

    def decode(self, logits: Logits, rows: Sequence[tuple[TokenizedText, Window]]) -> list[ReadRow]:
        """Return the logits of each row's text."""
        found = []
        for row, (item, window) in enumerate(rows):
            first = self.text_at(item, window)
            found.append(ReadRow(window, (logits[0][row, first : first + window.end - window.start].copy(),)))
        return found

    def compose(self, item: TokenizedText, decoded: Sequence[ReadRow]) -> Result:
        """Return the entities of a text from the logits of its windows."""
        options: Any = item.query.options
        text, context = item.query.text, item.parts[0].text
        scores = softmax(most_inside(decoded, len(context)))
        by_words = options.aggregation in ("first", "average", "max")
        begins = self._word_begins(text, context) if by_words else ()
        found = find_entities(self.labels, scores, context.places, begins, options.aggregation)
        kept = [each for each in found if each.label not in options.ignore_labels]
        entities: list[dict[str, Any]] = [
            {
                "label": each.label,
                "start": each.start,
                "end": each.end,
                "text": text[each.start : each.end],
                "score": round(each.score, SCORE_DIGITS),
            }
            for each in kept
        ]
        if options.offsets:
            for entity, offsets in zip(entities, convert_offsets(text, kept, options.offsets), strict=True):
                entity["offsets"] = offsets
        return {"status": str(JobStatus.SUCCEEDED), "entities": entities, "windows": len(decoded), "error": None}

    def _word_begins(self, text: str, context: TextTokens) -> list[bool]:
        """Return which tokens begin a word, as Transformers' pipeline decides it.

        Where the tokenizer marks the tokens that continue a word, a token without the mark begins one. Elsewhere a
        token behind or with a space does. The unknown token always does.
        """
        marks = bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))
        begins = []
        for token, (start, end) in zip(context.ids.tolist(), context.places.tolist(), strict=True):
            if marks:
                is_inside = len(self._tokenizer.id_to_token(token) or "") != end - start
            else:
                is_inside = start > 0 and " " not in text[start - 1 : start + 1]
            begins.append(token == self.unknown or not is_inside)
        return begins


def most_inside(decoded: Sequence[ReadRow], tokens: int) -> Scores:
    """Return the logits of each token of a text, from the window where the token is farthest from the edges."""
    rows = sorted(decoded, key=lambda read: read.window.start)
    if len(rows) == 1:
        return rows[0].values[0]
    logits = np.zeros((tokens, rows[0].values[0].shape[1]), dtype=np.float32)
    depths = np.full(tokens, -1)
    for read in rows:
        start, end = read.window.start, read.window.end
        at = np.arange(start, end)
        # The beginning and the end of the text are no edges.
        before = np.where(start == 0, tokens, at - start)
        depth = np.minimum(before, np.where(end == tokens, tokens, end - 1 - at))
        deeper = depth > depths[start:end]
        logits[start:end][deeper], depths[start:end][deeper] = read.values[0][deeper], depth[deeper]
    return logits
