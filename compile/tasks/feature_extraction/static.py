"""Load static embeddings of sentence-transformers and model2vec: a table with a vector for each token."""

import json
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from compile.tasks.sentence_files import Module, read_weights
from corelane.errors import ModelRefused, first_line


class Table(PreTrainedModel):
    """A network that looks up the vector of each token."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__(PreTrainedConfig(hidden_size=vectors.size(1), vocab_size=vectors.size(0)))
        self.embedding = nn.Embedding(*vectors.shape, _weight=vectors)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table."""
        return self.embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the vector of each token."""
        return {"last_hidden_state": self.embedding(input_ids)}


def load_static(label: str, module: Module) -> tuple[Any, Any, Any]:
    """Return the config, tokenizer and network of a static embedding; raise ModelRefused if its files do not load.

    It reads texts without special tokens.
    """
    try:
        said = json.loads((module.folder / "tokenizer.json").read_bytes())
        tokenizer = Tokenizer.from_str(json.dumps(said | {"post_processor": None}))
        network = Table(_vectors(read_weights(label, module))).eval()
    except ModelRefused:
        raise
    except Exception as error:
        # Files of another kind can fail in any way.
        raise ModelRefused(f"the static embedding of {label} does not load: {first_line(error)}") from error
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"])
    return network.config, fast, network


def _vectors(found: dict[str, Tensor]) -> Tensor:
    """Return a row for each token; model2vec may share rows between tokens (``mapping``) and weigh tokens."""
    if "embedding.weight" in found:
        return found["embedding.weight"]
    vectors = found["embeddings"]
    if "mapping" in found:
        vectors = vectors[found["mapping"].long()]
    if "weights" in found:
        vectors = vectors * found["weights"][:, None]
    return vectors
