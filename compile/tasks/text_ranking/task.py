"""Text ranking, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from compile.tasks.question_answering.samples import TEXTS
from compile.tasks.task import Row
from compile.tasks.text_classification.task import ClassificationHead
from compile.tasks.texts import LIGHTHOUSE
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.errors import ModelRefused
from corelane.tasks.text_classification.wire import Function
from corelane.tasks.text_ranking.task import TextRanking
from corelane.tasks.text_ranking.wire import RankingOptions

#: What makes a score of a logit, by the last part of the name that sentence-transformers has for it.
FUNCTIONS: Mapping[str, Function] = {"Identity": "none", "Sigmoid": "sigmoid"}


class Ranking(ClassificationHead):
    """Gives one logit for a query and a text."""

    name = TextRanking.name
    trained_to = "rank texts"
    short_texts = False
    ranks = True

    def check(self, label: str, folder: Path, config: Any) -> None:  # noqa: ARG002
        """Refuse a classifier of several labels, and scores that are made in a way not known here."""
        if config.num_labels != 1:
            raise ModelRefused(
                f"{label} gives {config.num_labels} logits for a query and a text, and {self.name} needs one: texts "
                "are sorted by it. A model of several labels can be compiled with `--task text-classification`"
            )
        if (named := activation_of(config)).rpartition(".")[2] not in FUNCTIONS:
            raise ModelRefused(
                f"{label} makes scores with {named}, which is not known here: its config.json needs "
                f"{' or '.join(FUNCTIONS)}"
            )

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the function that makes a score of a logit."""
        return {"function": FUNCTIONS[activation_of(config).rpartition(".")[2]]}

    def samples(self) -> list[Query]:
        """Return sample questions as queries, each with its own passage and another one."""
        short = LIGHTHOUSE[:90]
        pairs = [(query, (text, short)) for query, text in TEXTS]
        return [Query(query, orjson.dumps(texts).decode(), RankingOptions()) for query, texts in pairs]

    def found(self, parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the best text of each sample, by its best window."""
        best: dict[int, tuple[float, int]] = {}
        for rows, (part,) in zip(parts, logits, strict=True):
            for row, (item, _, window) in enumerate(rows):
                reached = (float(part[row, 0]), -window.part)
                best[item] = max(best.get(item, reached), reached)
        return {item: -number for item, (_, number) in best.items()}


def activation_of(config: Any) -> str:
    """Return the name of sentence-transformers' score function: by the config's newer key, or else the older one."""
    own = getattr(config, "sentence_transformers", None) or {}
    named = own.get("activation_fn") or getattr(config, "sbert_ce_default_activation_function", None)
    return str(named or "Sigmoid")


TASK = Ranking()
