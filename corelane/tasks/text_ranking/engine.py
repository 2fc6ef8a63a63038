"""Text ranking: each text is read with the query, and its logit decides its place. Many texts are tokenized in steps.

The texts are sorted by logits and not by scores: a sigmoid makes the highest logits equal.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import orjson

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact, Template, check_file
from corelane.domain.jobs import JobStatus
from corelane.engine.task import Query, Result, RunnerLimits
from corelane.engine.text.engine import ReadRow, RowShape, TextPart, TokenizedText, UnreadItem, VectorEngine
from corelane.tasks.text_classification.scores import SCORE_DIGITS, scores_of
from corelane.tasks.text_classification.wire import Function
from corelane.tasks.text_ranking.task import CHAT_NAME, TextRanking

TASK = TextRanking()

#: What a model without a template writes around a query and a text: nothing.
BARE: Mapping[str, Any] = MappingProxyType(dict.fromkeys(("before", "between", "lead", "tail"), ""))


class RankingEngine(VectorEngine):
    """Ranks texts with one cross-encoder."""

    overlap = TextRanking.overlap
    function: Function = "sigmoid"
    chat: Mapping[str, Any] = BARE

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read how its logits become scores."""
        opened = super().open(artifact, limits, calibration)
        opened.function = artifact.manifest.facts["function"]
        if CHAT_NAME in artifact.manifest.files:
            check_file(artifact, CHAT_NAME)
            opened.chat = {**BARE, **orjson.loads(artifact.file(CHAT_NAME).read_bytes())}
            if (after := opened.chat.get("after")) is not None:
                opened._pair = RowShape(Template(after=after, after_types=(0,) * len(after)))
        return opened

    def besides(self, query: Query) -> Sequence[str]:
        """Return the query with what is written around it."""
        return (self.chat["before"] + query.beside + self.chat["between"],)

    def texts(self, query: Query) -> Sequence[str]:
        """Return the texts to rank, each with what is written around it."""
        return [self.chat["lead"] + text + self.chat["tail"] for text in TASK.texts(query.text)]

    def _chars(self, query: Query) -> int:
        """Return the characters of a query and its texts."""
        return len(query.beside) + len(query.text)

    def _use_read_texts(self, reading: UnreadItem) -> None:
        """Cut the texts that were read into windows, which may run before the others are read."""
        for text in reading.read[1 + len(reading.parts) :]:
            part = TextPart(reading.read[0].ids, text)
            reading.windows += self._cut_part(reading.query, len(reading.parts), part)
            reading.parts.append(part)
        self._require_few(len(reading.windows))

    def _all_of(self, reading: UnreadItem) -> TokenizedText:
        """Return the query with the texts read so far."""
        return TokenizedText(reading.query, list(reading.parts), list(reading.windows))

    def compose(self, item: TokenizedText, decoded: Sequence[ReadRow]) -> Result:
        """Return the ranking of the texts by the highest logit of their windows; of equals the earlier text first."""
        options: Any = item.query.options
        best: dict[int, float] = {}
        for read in decoded:
            logit, part = float(read.values[0][0]), read.window.part
            best[part] = max(logit, best.get(part, logit))
        places = sorted(best, key=lambda part: (-best[part], part))[: options.top_n]
        scores = scores_of(np.array([best[part] for part in places]), options.function or self.function)
        ranking: list[dict[str, Any]] = [
            {"index": part, "score": round(float(score), SCORE_DIGITS)}
            for part, score in zip(places, scores, strict=True)
        ]
        if options.return_texts:
            texts = TASK.texts(item.query.text)
            for place in ranking:
                place["text"] = texts[place["index"]]
        return {"status": str(JobStatus.SUCCEEDED), "ranking": ranking, "windows": len(decoded), "error": None}
