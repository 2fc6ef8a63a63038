"""Tiny random networks with the head of any task, of several families, as a user's model is saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compile.build import build
from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.registry import open_backend
from corelane.engine.runner import Runner
from corelane.engine.task import Query
from corelane.engine.text.tokenize import tokenize
from corelane.settings import Settings
from tests.families.networks import make_config, tokenizer_of
from tests.families.rows import ROWS
from tests.families.tokenizers import make_tokenizer

#: Families that differ in how they put rows together, count positions, or share layers.
FAMILIES = ("bert", "roberta", "distilbert", "electra", "albert")


#: Words of one token each, for the tokenizer of BERT: texts of them read alike whole and cut.
WHOLE_WORDS = (
    "tower",
    "was",
    "bakery",
    "gone",
    "every",
    "shop",
    "since",
    "bread",
    "people",
    "keeper",
    "valley",
    "stone",
)


def save_tiny(kind: str, loader: str, folder: Path, larger: float | None = None, **config: Any) -> Path:
    """Save a tiny model of a family with the head that an AutoModel class of transformers gives it.

    Its random weights are ``larger`` than transformers makes them, so that attention has something to choose.
    """
    import torch
    import transformers

    row = next(each for each in ROWS if each.kind == kind)
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


def compiled(folder: Path, data: Path, dtype: str = "fp32", buckets: str = "2x96", **options: Any) -> Artifact:
    """Compile a model into a data folder."""
    return build(str(folder), settings=Settings(data_dir=data), buckets=buckets, dtype=dtype, **options)


def answer(artifact: Artifact, queries: Sequence[Query]) -> list[dict[str, Any]]:
    """Return the results of items, by a runner as a worker has it."""
    runner = Runner.open(open_backend("cpu"), artifact)
    runner.warm_up()
    return runner.results_of(queries)


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
