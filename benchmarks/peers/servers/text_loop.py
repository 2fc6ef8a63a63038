"""A loop without any service: reads texts once, when a line comes in, and prints the seconds that it took.

    python -m benchmarks.peers.servers.text_loop ARTIFACT CHECKPOINT TEXTS.json

Embeddings are sentence-transformers' own ``encode``. Classification does as that does.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.answering import dtype_of
from benchmarks.peers.vectors import EMBEDDING, PASS_TEXTS, TextModel


def reader(artifact: Path, checkpoint: Path) -> Callable[[Sequence[str]], Any]:
    """Return what reads texts."""
    torch.set_num_threads(1)
    if json.loads((artifact / "manifest.json").read_text())["task"] == EMBEDDING:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(checkpoint), device="cpu", model_kwargs={"dtype": dtype_of(artifact)})
        return lambda texts: model.encode(list(texts), batch_size=PASS_TEXTS)
    return TextModel(artifact, checkpoint, "transformers")


def main() -> None:
    """Load, say so, wait for the word, and read."""
    artifact, checkpoint, file = map(Path, sys.argv[1:])
    texts = json.loads(file.read_text())
    read = reader(artifact, checkpoint)
    read(texts[:PASS_TEXTS])
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    read(texts)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
