"""Tiny random networks with the head of any task, of several families, as a user's model is saved."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compile.build import build
from corelane.artifacts.manifest import Artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import Query
from corelane.engine.text.tokenize import tokenize
from corelane.settings import Settings
from corelane.store.jobs.stored_results import decode_results, encode_results
from corelane.tasks.registry import task_named
from tests.families.networks import make_config, tokenizer_of
from tests.families.rows import ROWS, Row
from tests.families.tokenizers import make_tokenizer

#: Families that differ in how they put rows together, count positions, or share layers.
FAMILIES = ("bert", "roberta", "distilbert", "electra", "albert")

#: Families whose heads read one token of a row, found by its id: the last ``</s>``, or the last that is no padding.
ONE_TOKEN = ("bart", "mbart", "t5", "llama", "qwen3", "gpt2", "xlnet")

#: Families that nobody asks questions, beside those of ``ROWS``.
OTHERS = (
    Row("gemma3_text", "GPT2Tokenizer", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}),
    Row("gemma2", "GPT2Tokenizer", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}),
)

#: Words of one token each, for the tokenizer of BERT: texts of them read alike whole and cut.
WHOLE_WORDS = ("tower", "was", "bakery", "gone", "every", "shop", "since", "bread", "people", "valley", "stone")

#: A tiny model of each task of a later version: what loads it, its config, and an item that is about a number.
TASKS: dict[str, tuple[str, dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "text-classification": (
        "AutoModelForSequenceClassification",
        {"num_labels": 2, "id2label": {0: "odd", 1: "even"}},
        lambda number: {"text": f"The number is {number}."},
    ),
    "zero-shot-classification": (
        "AutoModelForSequenceClassification",
        {"num_labels": 3, "id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}},
        lambda number: {"text": f"The number is {number}.", "labels": ["odd", "even"]},
    ),
    "text-ranking": (
        "AutoModelForSequenceClassification",
        {"num_labels": 1},
        lambda number: {"query": f"What is {number}?", "texts": [f"It is {number}.", "It is a river.", "Ada."]},
    ),
    "feature-extraction": ("AutoModel", {}, lambda number: {"text": f"The number is {number}."}),
    "token-classification": (
        "AutoModelForTokenClassification",
        {"num_labels": 3, "id2label": {0: "O", 1: "B-NUM", 2: "I-NUM"}},
        lambda number: {"text": f"The number is {number}."},
    ),
}


def save_tiny(kind: str, loader: str, folder: Path, larger: float | None = None, **config: Any) -> Path:
    """Save a tiny model of a family with the head that an AutoModel class of transformers gives it.

    Its random weights are ``larger`` than transformers makes them, so that attention has something to choose.
    """
    import torch
    import transformers

    row = next(each for each in (*ROWS, *OTHERS) if each.kind == kind)
    fast = make_tokenizer(row.tokenizer or tokenizer_of(kind))
    transformers.set_seed(7)
    made = make_config(row, fast)
    for name, value in config.items():
        setattr(made, name, value)
    network = getattr(transformers, loader).from_config(made).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(larger or row.larger)
    network.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_task(task: str, folder: Path, kind: str = "bert", larger: float | None = None) -> Path:
    """Save a tiny model of a family with the head of a task."""
    loader, config, _ = TASKS[task]
    return save_tiny(kind, loader, folder, larger, **config)


def queries_of(task: str, count: int, **options: Any) -> list[Query]:
    """Return items about the first numbers, as a worker has them."""
    form, make = task_named(task), TASKS[task][2]
    parts = [form.parts(form.item(**make(number))) for number in range(count)]
    return [Query(beside, text or "", form.options(**options)) for beside, text, _ in parts]


def compiled(folder: Path, data: Path, dtype: str = "fp32", buckets: str = "2x96", **options: Any) -> Artifact:
    """Compile a model into a data folder."""
    return build(str(folder), settings=Settings(data_dir=data), buckets=buckets, dtype=dtype, **options)


def answer(artifact: Artifact, queries: Sequence[Query]) -> list[dict[str, Any]]:
    """Return the results of items as callers get them, by a runner as a worker of the artifact's target has it."""
    runner = Runner.open(open_backend(artifact.manifest.target), artifact)
    runner.warm_up()
    return decode_results(encode_results(runner.results_of(queries)), queries[0].options)


def in_pieces(engine: Any, query: Query, part: int = 0) -> list[str]:
    """Return the texts of the windows of one part of a query, which read alone as they do in the whole."""
    [item] = engine.tokenize_all([query])
    text = item.parts[part].text
    windows = [window for window in item.windows if window.part == part]
    whole = engine.texts(query)[part]
    pieces = [whole[text.places[window.start][0] : text.places[window.end - 1][1]] for window in windows]
    for window, read in zip(windows, tokenize(engine._tokenizer, pieces), strict=True):
        assert read.ids.tolist() == text.ids[window.start : window.end].tolist()
    return pieces


def alike(one: Any, other: Any, near: float = 0.02) -> bool:
    """Return whether two outputs are the same but for rounding: batches of other shapes add up in another order."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=near, abs_tol=near)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name], near) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(*pair, near) for pair in zip(one, other, strict=True))
    return bool(one == other)
