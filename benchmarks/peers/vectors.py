"""Embedding and classification as a user of any peer would write them: texts in, vectors or scores out.

Texts go through in padded passes of up to 32, in the way that is named: ``compiled`` runs the file that Corelane
compiled, ``transformers`` the checkpoint in the same number format. It needs torch, numpy, tokenizers and transformers.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.peers.answering import dtype_of, load_network

EMBEDDING = "feature-extraction"

CLASSIFIER = "AutoModelForSequenceClassification"

#: Most texts of a pass, as sentence-transformers has it.
PASS_TEXTS = 32

#: The parts of a network's input: ids, mask and token types.
Parts = tuple[Tensor, Tensor, Tensor]


class TextModel:
    """A model and its tokenizer, on one thread."""

    def __init__(self, artifact: Path, checkpoint: Path, way: str) -> None:
        torch.set_num_threads(1)
        manifest = json.loads((artifact / "manifest.json").read_text())
        self.task = manifest["task"]
        self._tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
        self._tokenizer.enable_padding(pad_id=manifest["tokenizer"]["pad_id"])
        self._tokenizer.enable_truncation(manifest["max_length"])
        if way == "compiled":
            network = load_network(artifact / manifest["buckets"][0]["file"])
            self._run: Callable[[Parts], Tensor] = lambda parts: _first(network(*parts))
        else:
            self._run = official(self.task, checkpoint, dtype_of(artifact))

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, or the scores of its labels; many texts are read by length."""
        found: dict[int, list[float]] = {}
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        for first in range(0, len(order), PASS_TEXTS):
            part = order[first : first + PASS_TEXTS]
            found.update(zip(part, self._read([texts[at] for at in part]), strict=True))
        return [found[at] for at in range(len(texts))]

    def _read(self, texts: list[str]) -> list[list[float]]:
        read = self._tokenizer.encode_batch(texts)
        ids, mask, types = (
            torch.tensor([getattr(each, part) for each in read]) for part in ("ids", "attention_mask", "type_ids")
        )
        with torch.inference_mode():
            found = self._run((ids, mask, types)).float()
            if self.task == EMBEDDING:
                visible = mask.unsqueeze(-1).float()
                means = (found * visible).sum(1) / visible.sum(1).clamp(min=1e-9)
                made = torch.nn.functional.normalize(means, dim=1)
            else:
                made = found.softmax(-1)
        listed: list[list[float]] = made.tolist()
        return listed


def official(task: str, checkpoint: Path, dtype: torch.dtype) -> Callable[[Parts], Tensor]:
    """Return the checkpoint as a function, loaded by transformers."""
    import transformers

    name, field = ("AutoModel", "last_hidden_state") if task == EMBEDDING else (CLASSIFIER, "logits")
    network = getattr(transformers, name).from_pretrained(checkpoint, dtype=dtype).eval()

    def run(parts: Parts) -> Tensor:
        ids, mask, types = parts
        found: Tensor = network(input_ids=ids, attention_mask=mask, token_type_ids=types)[field]
        return found

    return run


def _first(found: Any) -> Tensor:
    first: Tensor = found[0] if isinstance(found, tuple) else found
    return first
