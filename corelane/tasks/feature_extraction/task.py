"""Feature extraction as a task."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from corelane.tasks.feature_extraction.dialects import (
    Embeddings,
    HfSimilarities,
    HfVectors,
    TeiDecoded,
    TeiSimilarities,
    TeiTokens,
    TeiTokenVectors,
    TeiVectors,
)
from corelane.tasks.feature_extraction.present import EmbeddingPresenter
from corelane.tasks.feature_extraction.wire import EmbeddingOptions, EmbeddingResult, numbers_of
from corelane.tasks.text import TextItem, TextTask

#: Numbers of a vector shown in one line.
SHOWN = 4


class FeatureExtraction(TextTask):
    """Turns a text into a vector."""

    name = EmbeddingOptions.task
    item = TextItem
    options = EmbeddingOptions
    result = EmbeddingResult
    nothing: Mapping[str, Any] = MappingProxyType({"embedding": None, "tokens": 0})
    example: Mapping[str, Any] = MappingProxyType({"text": "How tall is the tower?"})
    dialects = (
        Embeddings(),
        HfVectors(),
        HfSimilarities(),
        TeiVectors(),
        TeiTokenVectors(),
        TeiSimilarities(),
        TeiTokens(),
        TeiDecoded(),
    )
    engine = "corelane.tasks.feature_extraction.engine:EmbeddingEngine"
    present = EmbeddingPresenter()
    packed: Mapping[str, Any] = MappingProxyType({"encoding": "base64"})
    overlap = 0

    def columns(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the vector as numbers, and its tokens."""
        vector = result["embedding"]
        return {"embedding": numbers_of(vector) if isinstance(vector, str) else vector, "tokens": result["tokens"]}

    def line(self, result: Mapping[str, Any]) -> str:
        """Return the length of a vector and its first numbers, or its text in base64."""
        vector = result["embedding"]
        if not isinstance(vector, list):
            return vector or "no vector"
        first = " ".join(f"{number:.4f}" for number in vector[:SHOWN])
        return f"{len(vector)} numbers: {first}{' …' if len(vector) > SHOWN else ''}"
