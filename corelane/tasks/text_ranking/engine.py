"""Text ranking: the logit of each text beside the query is its place. A long list of texts is tokenized in steps.

The texts are sorted by their logits: a sigmoid makes the highest of them equal.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import CHARS_PER_TOKEN
from corelane.domain.jobs import JobStatus
from corelane.engine.task import Query, Ready, Result, RunnerLimits, Window, failure
from corelane.engine.text.chunks import CHUNK_CHARS, Document, cut_text
from corelane.engine.text.engine import ReadRow, TextPart, TokenizedText, Tokens
from corelane.engine.text.tokenize import TextTokens, tokenize
from corelane.engine.text.vectors import VectorEngine
from corelane.errors import InvalidInput
from corelane.tasks.text_classification.scores import SCORE_DIGITS, scores_of
from corelane.tasks.text_classification.wire import Function
from corelane.tasks.text_ranking.task import TextRanking

TASK = TextRanking()


@dataclass(slots=True)
class UnreadTexts:
    """A query whose texts are being tokenized, a few at a time; ``steps`` gives their tokens, in order."""

    query: Query
    beside: Tokens
    steps: Iterator[list[TextTokens]]
    tokens_left: int
    parts: list[TextPart] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    def item(self) -> TokenizedText:
        """Return the query with the texts read so far."""
        return TokenizedText(self.query, list(self.parts), list(self.windows))


class RankingEngine(VectorEngine):
    """Ranks texts with one cross-encoder."""

    overlap = TextRanking.overlap
    function: Function = "sigmoid"

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and read how its logits become scores."""
        opened = super().open(artifact, limits, calibration)
        opened.function = artifact.manifest.facts["function"]
        return opened

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take what every engine takes."""
        super().__init__(*args, **options)
        #: Queries whose texts are not all tokenized; the first one is next.
        self._lists: OrderedDict[Hashable, UnreadTexts] = OrderedDict()

    def texts(self, query: Query) -> Sequence[str]:
        """Return the texts to rank."""
        found: Sequence[str] = TASK.texts(query.text)
        return found

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[Any]]:
        """Tokenize queries. Long lists of texts are read in steps, by ``read_on``."""
        at_once = []
        for key, query in queries:
            if len(query.text) <= CHUNK_CHARS:
                at_once.append((key, query))
                continue
            [beside] = tokenize(self._tokenizer, [query.beside])
            tokens = len(query.text) // CHARS_PER_TOKEN
            self._lists[key] = UnreadTexts(query, beside.ids, self._read_steps(query), tokens)
        return self._tokenize(at_once)

    def read_on(self) -> list[Ready[Any]]:
        """Tokenize a few more texts of one query; return the query if these were the last."""
        self.read_for = list(self._lists)[:1]
        if not self._lists:
            return []
        key, reading = self._lists.popitem(last=False)
        try:
            if (contexts := next(reading.steps, None)) is None:
                return [(key, reading.item())]
            for context in contexts:
                part = TextPart(reading.beside, context)
                reading.windows += self._cut_part(reading.query, len(reading.parts), part)
                reading.parts.append(part)
                reading.tokens_left -= len(context)
            self._require_few(len(reading.windows))
        except InvalidInput as error:
            return [(key, failure(reading.query, error))]
        self._lists[key] = reading
        return []

    def read_so_far(self) -> list[tuple[Hashable, TokenizedText]]:
        """Return the query that was read last, with the texts read so far."""
        return [(key, self._lists[key].item()) for key in self.read_for if key in self._lists]

    def unread_tokens(self, most_per_item: int) -> int:
        """Estimate the tokens still to be read, counting at most ``most_per_item`` for an item."""
        return sum(max(1, min(reading.tokens_left, most_per_item)) for reading in self._lists.values())

    def forget(self, keys: Collection[Hashable] | None = None) -> None:
        """Stop reading for these queries, or for all."""
        for key in list(self._lists) if keys is None else keys:
            self._lists.pop(key, None)

    def _read_steps(self, query: Query) -> Iterator[list[TextTokens]]:
        """Return the tokens of a query's texts, in order, by steps of one chunk of text."""
        some: list[str] = []
        chars = 0
        for text in self.texts(query):
            if len(text) > (self._long.short_chars or len(text)) and self._cache.find((query.owner, text)) is None:
                yield self._contexts(query.owner, some)
                some, chars, document = [], 0, Document(deque(cut_text(text, CHUNK_CHARS)))
                while document.chunks:
                    document.read_on(self._tokenizer)
                    yield []
                self.work.texts_read += 1
                self._cache.keep((query.owner, text), context := document.tokens_read())
                yield [context]
                continue
            some.append(text)
            chars += len(text)
            if chars > CHUNK_CHARS:
                yield self._contexts(query.owner, some)
                some, chars = [], 0
        yield self._contexts(query.owner, some)

    def _contexts(self, owner: str, texts: Sequence[str]) -> list[TextTokens]:
        """Return the tokens of texts, and cache them."""
        kept = {text: context for text in texts if (context := self._cache.find((owner, text))) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        fresh = dict(zip(missing, tokenize(self._tokenizer, missing), strict=True))
        for text, context in fresh.items():
            self._cache.keep((owner, text), context)
        self.work.texts_hit += len(kept)
        self.work.texts_read += len(fresh)
        contexts = kept | fresh
        return [contexts[text] for text in texts]

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
            texts = self.texts(item.query)
            for place in ranking:
                place["text"] = texts[place["index"]]
        return {"status": str(JobStatus.SUCCEEDED), "ranking": ranking, "windows": len(decoded), "error": None}
