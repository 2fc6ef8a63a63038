"""Text ranking, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from compile.tasks.question_answering.samples import TEXTS
from compile.tasks.sentence_files import (
    MODULES,
    NETWORK_SETTINGS,
    SETTINGS,
    list_modules,
    longest_row,
    read_file,
    read_network,
)
from compile.tasks.task import Row
from compile.tasks.text_classification.task import ClassificationHead
from compile.tasks.texts import LIGHTHOUSE
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.errors import ModelRefused
from corelane.tasks.text_classification.wire import Function
from corelane.tasks.text_ranking.task import TextRanking
from corelane.tasks.text_ranking.wire import RankingOptions

#: What makes a score of a logit, by the class of torch that sentence-transformers names.
FUNCTIONS: Mapping[str, Function] = {"Identity": "none", "Sigmoid": "sigmoid"}

#: The library's own name of what a cross-encoder's network is for.
MADE_FOR = "sequence-classification"


class Ranking(ClassificationHead):
    """Gives one logit for a query and a text."""

    name = TextRanking.name
    trained_to = "rank texts"
    short_texts = False
    ranks = True
    files = (MODULES, SETTINGS, *NETWORK_SETTINGS)

    def check(self, label: str, folder: Path, config: Any) -> None:
        """Refuse a classifier of several labels, and scores that are made in a way not known here."""
        if config.num_labels != 1:
            raise ModelRefused(
                f"{label} gives {config.num_labels} logits for a query and a text, and {self.name} needs one: texts "
                "are sorted by it. A model of several labels can be compiled with `--task text-classification`"
            )
        function_of(label, folder, config)
        kinds = [module.kind for module in list_modules(label, folder)]
        if kinds not in ([], ["Transformer"]):
            raise ModelRefused(f"{label} makes scores by {', '.join(kinds)}: Corelane does Transformer alone")
        own = settings_of(label, folder)
        if own and read_network(label, folder, MADE_FOR)["lowercase"]:
            raise ModelRefused(f"{label} makes its texts lower case beside its tokenizer, which Corelane does not")
        if (own.get("prompts") or {}).get(own.get("default_prompt_name")):
            raise ModelRefused(f"{label} puts a prompt before each query, which Corelane does not")

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:
        """Return the function that makes a score of a logit, and the longest row that the library reads."""
        label = folder.name
        longest = read_network(label, folder, MADE_FOR) if settings_of(label, folder) else longest_row(label, folder)
        return {"function": function_of(label, folder, config)} | longest

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


def settings_of(label: str, folder: Path) -> Mapping[str, Any]:
    """Return the settings of a cross-encoder that sentence-transformers saved from 6 on; empty for older ones."""
    own: Mapping[str, Any] = read_file(label, folder / SETTINGS) if (folder / MODULES).is_file() else {}
    return own if own.get("model_type") == "CrossEncoder" else {}


def function_of(label: str, folder: Path, config: Any) -> Function:
    """Return what makes scores, by the newest of the three places that say it; raise ModelRefused if unknown."""
    older = getattr(config, "sentence_transformers", None) or {}
    oldest = getattr(config, "sbert_ce_default_activation_function", None)
    named = settings_of(label, folder).get("activation_fn") or older.get("activation_fn", oldest)
    if named is None:
        return "sigmoid"
    library, _, kind = str(named).rpartition(".")
    if library.partition(".")[0] != "torch" or kind not in FUNCTIONS:
        raise ModelRefused(
            f"{label} makes scores with {named}, which is not known here: its settings need torch's "
            f"{' or '.join(FUNCTIONS)}"
        )
    return FUNCTIONS[kind]


TASK = Ranking()
