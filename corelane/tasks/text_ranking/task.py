"""Text ranking as a task: the query and each text are one row."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from corelane.domain.dispatch import LEAST_TOKENS, SHORT_CHARS, SPECIAL_TOKENS, measure, rows_tokens
from corelane.tasks.task import Bounds, Parts
from corelane.tasks.text import TextTask, check_beside, check_text
from corelane.tasks.text_ranking.dialects import Rerank, RerankV2, TeiRanks
from corelane.tasks.text_ranking.present import RankingPresenter
from corelane.tasks.text_ranking.wire import Ranked, RankingOptions, RankingResult

#: The file of an artifact with what a model's own template writes around a query and a text.
CHAT_NAME = "chat.json"


class TextRanking(TextTask):
    """Ranks texts by how well they fit a query. The texts are stored together, as JSON."""

    name = RankingOptions.task
    item = Ranked
    options = RankingOptions
    result = RankingResult
    beside = (str,)
    rows_by = "texts"
    nothing: Mapping[str, Any] = MappingProxyType({"ranking": []})
    example: Mapping[str, Any] = MappingProxyType(
        {"query": "How tall is the tower?", "texts": ["It is 330 metres tall.", "It opened in 1889."]}
    )
    dialects = (Rerank(), RerankV2(), TeiRanks())
    engine = "corelane.tasks.text_ranking.engine:RankingEngine"
    present = RankingPresenter()
    overlap = 64

    def parts(self, item: Ranked) -> Parts:
        """Return the query, and the texts."""
        return item.query, orjson.dumps(item.texts).decode(), None

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of a query and its texts."""
        return {"query": beside, "texts": self.texts(text or "[]")}

    def texts(self, text: str) -> Sequence[str]:
        """Return the texts to rank."""
        found: list[str] = orjson.loads(text)
        return found

    def tokens(self, beside: Any, text: str, options: RankingOptions) -> int:  # noqa: ARG002
        """Estimate the tokens of the rows of all texts."""
        query, texts = measure(beside), self.texts(text)
        short = [each for each in texts if len(each) <= SHORT_CHARS]
        # A text that fits one window beside any query is measured together with the others.
        found = measure("".join(short)) + len(short) * (SPECIAL_TOKENS + query)
        for each in texts if len(short) < len(texts) else ():
            if len(each) > SHORT_CHARS:
                found += rows_tokens(measure(each), 1, query, query, self.overlap)
        return max(LEAST_TOKENS, math.ceil(found))

    def check(self, bounds: Bounds, place: str, item: Ranked) -> None:
        """Raise TooLarge for a query or a text that is too long."""
        check_beside(bounds, place, "the query", item.query)
        for number, text in enumerate(item.texts):
            check_text(bounds, place, f"text {number}", text)

    def line(self, result: Mapping[str, Any]) -> str:
        """Return the places with their scores, best first; a text is named by its position if it is not returned."""
        shown = (
            f"{each['index']}{' ' + repr(each['text']) if each.get('text') else ''} ({each['score']:.3f})"
            for each in result["ranking"]
        )
        return ", ".join(shown) or "no texts"
