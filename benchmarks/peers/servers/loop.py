"""A plain loop around a library: lists of texts in, vectors out, one list after the other.

    python -m benchmarks.peers.servers.loop PORT sentence_transformers|fastembed [threads]

One thread, or with ``threads`` one a core. https://sbert.net/docs/package_reference/sentence_transformer,
https://qdrant.github.io/fastembed
"""

import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from benchmarks.peers.servers.given import given, tell_loaded

#: Texts of a batch: what sentence-transformers takes by itself.
BATCH = 32

Encode = Callable[[list[str]], Any]


def sentence_transformers(threads: int) -> Encode:
    """Return the loop of sentence-transformers, in the number format of the artifact."""
    import torch
    from sentence_transformers import SentenceTransformer

    from benchmarks.peers.answering import dtype_of

    torch.set_num_threads(threads)
    about = {"dtype": dtype_of(Path(given().artifact))}
    model = SentenceTransformer(given().checkpoint, device="cpu", model_kwargs=about)
    return lambda texts: model.encode(texts, batch_size=BATCH, show_progress_bar=False)


def fastembed(threads: int) -> Encode:
    """Return the loop of fastembed, whose ONNX file lies beside the checkpoint."""
    from fastembed import TextEmbedding

    name = "sentence-transformers/all-MiniLM-L6-v2"
    model = TextEmbedding(name, specific_model_path=given().checkpoint, threads=threads)
    return lambda texts: list(model.embed(texts, batch_size=BATCH))


def main(port: str, library: str, *more: str) -> None:
    """Answer one connection after the other until a signal."""
    encode = {"sentence_transformers": sentence_transformers, "fastembed": fastembed}[library](
        len(os.sched_getaffinity(0)) if more else 1
    )
    encode(["The little engine says: I think I can."] * (BATCH + 1))
    with Listener(("127.0.0.1", int(port))) as listener:
        tell_loaded()
        while True:
            with listener.accept() as connection:
                try:
                    while True:
                        connection.send(encode(connection.recv()))
                except EOFError:
                    pass


if __name__ == "__main__":
    main(*sys.argv[1:])
