"""Text ranking, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from compile.tasks.question_answering.samples import TEXTS
from compile.tasks.sentence_files import SENTENCE_FILES, SETTINGS, list_modules, longest_row, read_file, read_network
from compile.tasks.task import Row
from compile.tasks.text_classification.task import ClassificationHead
from compile.tasks.text_ranking.chat import read_chat, takes_pairs
from compile.tasks.text_ranking.judge import judge_by_tokens
from compile.tasks.texts import LIGHTHOUSE
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.errors import ModelRefused
from corelane.tasks.text_classification.wire import Function
from corelane.tasks.text_ranking.task import CHAT_NAME, TextRanking
from corelane.tasks.text_ranking.wire import RankingOptions

#: What makes a score of a logit, by the class of torch that sentence-transformers names.
FUNCTIONS: Mapping[str, Function] = {"Identity": "none", "Sigmoid": "sigmoid"}

#: The ending of the names of language models.
CAUSAL = "ForCausalLM"


class Ranking(ClassificationHead):
    """Gives one logit for a query and a text."""

    name = TextRanking.name
    heads = (*ClassificationHead.heads, CAUSAL)
    trained_to = "rank texts"
    short_texts = False
    ranks = True
    files = SENTENCE_FILES

    def is_made_for(self, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> bool:
        """Return whether a model is a classifier of one label, or a language model saved as a cross-encoder."""
        if any(name.endswith(CAUSAL) for name in architectures):
            return bool(settings_of(folder.name, folder))
        return super().is_made_for(architectures, folder, config)

    def loader_of(self, config: Any) -> str:
        """Return the class that loads the network, which may be a language model."""
        return "AutoModelForCausalLM" if is_causal(config) else self.loader

    def check(self, label: str, folder: Path, config: Any) -> None:
        """Refuse a classifier of several labels, and scores that are made in a way not known here."""
        kinds = [module.kind for module in list_modules(label, folder)]
        if is_causal(config):
            if kinds != ["Transformer", "LogitScore"] or not settings_of(label, folder):
                raise ModelRefused(
                    f"{label} is a language model whose files do not say which of its tokens score a text: save it "
                    "with `CrossEncoder(…).save_pretrained(…)` of sentence-transformers 5.4 or later, which adds "
                    "`LogitScore`, or take a form of it for sequence classification, often called `…-seq-cls`"
                )
        elif config.num_labels != 1:
            raise ModelRefused(
                f"{label} gives {config.num_labels} logits for a query and a text, and {self.name} needs one: texts "
                "are sorted by it. A model of several labels can be compiled with `--task text-classification`"
            )
        elif kinds not in ([], ["Transformer"]):
            raise ModelRefused(f"{label} makes scores by {', '.join(kinds)}: Corelane does Transformer alone")
        function_of(label, folder, config)
        if network_of(label, folder).get("lowercase"):
            raise ModelRefused(f"{label} makes its texts lower case beside its tokenizer, which Corelane does not")

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:
        """Return the function that makes a score of a logit, and the longest row that the library reads."""
        label = folder.name
        longest = (network_of(label, folder) or longest_row(label, folder)).get("max_length")
        return {"function": function_of(label, folder, config)} | ({"max_length": longest} if longest else {})

    def keep(self, label: str, folder: Path, facts: Mapping[str, Any], tokenizer: Any) -> Mapping[str, bytes]:  # noqa: ARG002
        """Return what the model's own prompt and chat template write around a query and a text."""
        if not list_modules(label, folder) and takes_pairs(tokenizer):
            raise ModelRefused(
                f"sentence-transformers writes queries and texts into the chat template of {label}: save it with "
                "`CrossEncoder(…).save_pretrained(…)`, so that its files say so, or its tokenizer without a template"
            )
        own = settings_of(label, folder)
        prompt = (own.get("prompts") or {}).get(own.get("default_prompt_name"))
        if (chat := network_of(label, folder).get("chat")) is not None:
            return {CHAT_NAME: orjson.dumps(read_chat(label, tokenizer, chat, prompt))}
        return {CHAT_NAME: orjson.dumps({"before": prompt})} if prompt else {}

    def finish(self, label: str, folder: Path, network: Any) -> Any:
        """Return a network with one logit: that of a language model is made of the logits of its tokens."""
        if not is_causal(network.config):
            return network
        said = read_file(label, list_modules(label, folder)[1].folder / "config.json")
        return judge_by_tokens(label, network, said.get("true_token_id"), said.get("false_token_id"))

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


def is_causal(config: Any) -> bool:
    """Return whether a network is a language model."""
    return any(name.endswith(CAUSAL) for name in config.architectures or ())


def settings_of(label: str, folder: Path) -> Mapping[str, Any]:
    """Return the settings of a cross-encoder that sentence-transformers saved from 6 on; empty for older ones."""
    own: Mapping[str, Any] = read_file(label, folder / SETTINGS) if list_modules(label, folder) else {}
    return own if own.get("model_type") == "CrossEncoder" else {}


def network_of(label: str, folder: Path) -> Mapping[str, Any]:
    """Return the settings of a cross-encoder's network; empty for older ones."""
    made_for = "text-generation" if len(list_modules(label, folder)) > 1 else "sequence-classification"
    return read_network(label, folder, made_for, messages=True) if settings_of(label, folder) else {}


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
