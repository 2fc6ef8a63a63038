"""Feature extraction, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compile.tasks.feature_extraction.modules import STATIC, pack_layers, read_modules
from compile.tasks.feature_extraction.static import load_static
from compile.tasks.sentence_files import SENTENCE_FILES, SETTINGS, list_modules, read_file
from compile.tasks.task import CompileTask, Row
from compile.tasks.texts import SAMPLES
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query
from corelane.tasks.feature_extraction.pooling import LAYERS_NAME, pool
from corelane.tasks.feature_extraction.task import FeatureExtraction
from corelane.tasks.feature_extraction.wire import EmbeddingOptions

#: Least cosine of two vectors that count as equal. Vectors in bf16 reach 0.9995 and more, in int8 0.99.
SAME_DIRECTION = 0.98

#: The classes of encoders alone, by ``model_type``.
ENCODERS = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
    "switch_transformers": "SwitchTransformersEncoderModel",
}


class Embedding(CompileTask):
    """Gives the vector of each token of a row."""

    name = FeatureExtraction.name
    heads = ()
    loader = "AutoModel"
    outputs = ("last_hidden_state",)
    trained_to = "embed texts"
    short_texts = True
    files = SENTENCE_FILES

    def is_made_for(self, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return whether a model has sentence-transformers' files or no head, and is not a cross-encoder."""
        if any(name.endswith("ForSequenceClassification") for name in architectures):
            return False
        if read_file(folder.name, folder / SETTINGS).get("model_type") == "CrossEncoder":
            return False
        return (folder / "modules.json").is_file() or any(name.endswith("Model") for name in architectures)

    def loader_of(self, config: Any) -> str:
        """Return the class that loads the network: of T5 and its kin the encoder alone, as sentence-transformers."""
        return ENCODERS.get(config.model_type, self.loader)

    def check(self, label: str, folder: Path, config: Any) -> None:
        """Raise ModelRefused if a model makes its vectors in a way that Corelane does not support."""
        read_modules(label, folder, config)

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:
        """Return how the vectors of tokens become one."""
        return {"size": int(config.hidden_size), **read_modules(folder.name, folder, config)}

    def load(self, label: str, folder: Path) -> tuple[Any, Any, Any] | None:
        """Return the table of a static embedding, which transformers does not know, as a network."""
        first = next(iter(list_modules(label, folder)), None)
        return load_static(label, first) if first is not None and first.kind == STATIC else None

    def keep(self, label: str, folder: Path, facts: Mapping[str, Any], tokenizer: Any) -> Mapping[str, bytes]:  # noqa: ARG002
        """Return the weights of the layers behind the pooling, which the engine computes."""
        layers = facts.get("layers")
        return {LAYERS_NAME: pack_layers(label, folder, layers)} if layers else {}

    def untrained(self, loading: Mapping[str, Any]) -> list[str]:
        """Return the weights that a model lacks, but for the pooler, which nothing reads."""
        return [name for name in super().untrained(loading) if not name.startswith("pooler.")]

    def samples(self) -> list[Query]:
        """Return sample texts; those that are too long are read in windows."""
        options = EmbeddingOptions(long="mean")
        return [Query(None, text, options) for text in SAMPLES]

    def found(self, parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> Mapping[int, Any]:
        """Return the direction of each sample's vector, the mean over all its windows."""
        totals: dict[int, Any] = {}
        for rows, (part,) in zip(parts, logits, strict=True):
            for row, (item, _, window) in enumerate(rows):
                vector = pool(part[row, : window.length], ("mean",))
                totals[item] = totals.get(item, 0) + window.length * vector
        return {item: Direction(total) for item, total in totals.items()}

    def divergence(self, expected: Logits, got: Logits) -> float:
        """Return how far vectors are from the eager network's: 1 minus the cosine of both, as a mean over rows."""
        pairs = zip(expected[0], got[0], strict=True)
        return 1.0 - float(np.mean([cosine(one.ravel(), other.ravel()) for one, other in pairs]))


class Direction:
    """A vector; equal to another that points almost the same way."""

    def __init__(self, vector: NDArray[Any]) -> None:
        self.vector = vector

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Direction) and cosine(self.vector, other.vector) >= SAME_DIRECTION


def cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the cosine of two vectors; 1 if both are zeros."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else float(not one.any() and not other.any())


TASK = Embedding()
