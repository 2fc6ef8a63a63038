"""Token classification, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compile.tasks.task import CompileTask, Row
from compile.tasks.text_classification.task import labels_of
from compile.tasks.texts import SAMPLES
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.tasks.token_classification.task import TokenClassification
from corelane.tasks.token_classification.wire import EntityOptions

#: More tokens than a sample has.
MOST_TOKENS = 1 << 20


class EntityHead(CompileTask):
    """Gives the logits of each token's labels."""

    name = TokenClassification.name
    heads = ("ForTokenClassification",)
    loader = "AutoModelForTokenClassification"
    outputs = ("logits",)
    trained_to = "label tokens"
    short_texts = True

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the labels."""
        return {"labels": labels_of(config)}

    def read_tokenizer(self, fast: Any) -> dict[str, Any]:
        """Return the id of the unknown token, which begins a word; None if the tokenizer has none."""
        return {"unknown": fast.unk_token_id}

    def samples(self) -> list[Query]:
        """Return sample texts."""
        return [Query(None, text, EntityOptions()) for text in SAMPLES]

    def found(self, parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the best label of each token of each sample."""
        found: dict[int, int] = {}
        for rows, (part,) in zip(parts, logits, strict=True):
            for row, (item, _, window) in enumerate(rows):
                labels = part[row, : window.length].argmax(axis=-1).tolist()
                first = item * MOST_TOKENS + window.start
                found |= {first + at: label for at, label in enumerate(labels)}
        return found


TASK = EntityHead()
