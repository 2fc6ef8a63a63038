"""What a row of the list says of a model: the files that the hub has of it, but for their sizes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

#: What config.json of each kind of network says beside sizes, as most models of that kind have it.
CONFIGS: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("configs.json").read_text())

#: The beginning of the names of a kind's classes.
CLASSES = {
    "albert": "Albert",
    "bart": "Bart",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "gemma3_text": "Gemma3Text",
    "llama": "Llama",
    "mistral": "Mistral",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "nomic_bert": "NomicBert",
    "qwen3": "Qwen3",
    "roberta": "Roberta",
    "t5": "T5",
    "xlm-roberta": "XLMRoberta",
}

QUESTIONS, LABELS, JUDGING = "question-answering", "text-classification", "zero-shot-classification"
ENTITIES, VECTORS, RANKING = "token-classification", "feature-extraction", "text-ranking"

HEADS = {
    QUESTIONS: "ForQuestionAnswering",
    ENTITIES: "ForTokenClassification",
    VECTORS: "Model",
    **dict.fromkeys((LABELS, JUDGING, RANKING), "ForSequenceClassification"),
}

#: The files of a tokenizer: ``words`` is vocab.txt alone, ``merges`` vocab.json and merges.txt, ``pieces`` a file of
#: SentencePiece alone, ``json`` tokenizer.json.
Form = Literal["words", "merges", "pieces", "json"]

#: What version 2 of sentence-transformers says of itself.
ABOUT_2 = {"__version__": {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}}

#: The same of versions 3 and later, which have prompts and similarity.
ABOUT_3 = {
    "__version__": {"sentence_transformers": "3.4.1", "transformers": "4.48.0", "pytorch": "2.5.1"},
    "prompts": {},
    "default_prompt_name": None,
    "similarity_fn_name": "cosine",
}


@dataclass(frozen=True)
class Sentences:
    """The files that sentence-transformers adds.

    ``longest`` and ``lower`` are in sentence_bert_config.json, which is absent without ``longest``. ``dense`` are
    whether each Dense has a tanh and a bias. ``about`` is config_sentence_transformers.json, None if it is absent.
    ``modules`` are the classes of modules if they are others: of the library or, with a dot, of a model's own.
    """

    pooling: str = "mean_tokens"
    longest: int | None = 512
    lower: bool = False
    dense: tuple[bool, ...] = ()
    normalize: bool = True
    about: Mapping[str, Any] | None = field(default_factory=lambda: ABOUT_2)
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Popular:
    """A model of the hub.

    ``config`` is what its config.json says otherwise than others of its kind, ``told`` its tokenizer_config.json, None
    if it has none. ``adds`` are the tokens that a decoder's tokenizer.json puts before and behind a text. ``option`` is
    whether its card makes one expect `--task`. ``refused`` is a part of the sentence that refuses it. ``quick`` rows
    run in `make test`.
    """

    name: str
    task: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    form: Form = "json"
    head: str = ""
    tokenizer: str = ""
    told: Mapping[str, Any] | None = field(default_factory=dict)
    adds: tuple[str, str] = ("", "")
    sentences: Sentences | None = None
    dtype: str = "float32"
    weights: Literal["safetensors", "bin", "shards"] = "safetensors"
    option: bool = False
    refused: str = ""
    quick: bool = False

    @property
    def network(self) -> str:
        """Return the class of transformers that the weights are of."""
        return self.head or CLASSES[self.kind] + HEADS[self.task]


def labels(*names: str, **more: Any) -> dict[str, Any]:
    """Return the labels of a config as a file has them, and other settings."""
    numbers = {name: at for at, name in enumerate(names)}
    return {"id2label": {str(at): name for name, at in numbers.items()}, "label2id": numbers, **more}


def entities(*kinds: str, scheme: str = "BI", **more: Any) -> dict[str, Any]:
    """Return labels of entities of some kinds in a scheme."""
    return labels("O", *(f"{mark}-{kind}" for kind in kinds for mark in scheme), **more)


def own_code(**classes: str) -> dict[str, Any]:
    """Return what a config says of code that is beside its weights."""
    return {"auto_map": {"AutoConfig": "there/code--configuration.OwnConfig", **classes}}
