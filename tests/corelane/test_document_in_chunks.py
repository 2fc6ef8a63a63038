"""A document that is tokenized in chunks, between batches, is answered as one that is tokenized at once."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.engine.runner import Runner
from corelane.engine.text import chunks
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.tools.fakes import FixedBackend

WORDS = ["tower", "river", "ada", "東京", "é", "👩‍🚀", "ﬁ", "berlin", ".", "the"]


class NoisyBackend(FixedBackend):
    """Its logits are noise that a row's tokens decide, [CLS] too; many are equal."""

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        noise = np.stack([self._row(row) for row in batch.input_ids * batch.attention_mask])
        return (np.ascontiguousarray(noise[:, 0]), np.ascontiguousarray(noise[:, 1]))

    def _row(self, row: np.ndarray) -> np.ndarray:
        seed = np.trim_zeros(row).tobytes()
        # Drawn place by place: it is the same however wide the batch is.
        return np.round(np.random.default_rng(list(seed)).normal(0, 2, size=(len(row), 2)).T, 1).astype(np.float32)


@pytest.fixture(scope="module")
def whole(tiny_artifact: Artifact) -> Runner:
    return Runner.open(NoisyBackend(), tiny_artifact)


@pytest.fixture(scope="module")
def chunked(tiny_artifact: Artifact) -> Runner:
    """Return a runner that tokenizes a document in many chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_CHARS", 60)
        return Runner.open(NoisyBackend(), tiny_artifact)


@given(
    words=st.builds(
        lambda count, seed: random.Random(seed).choices(WORDS, k=count), st.integers(1, 200), st.integers(0, 99)
    ),
    top_k=st.integers(1, 4),
    longest=st.integers(1, 20),
    stride=st.integers(0, 40),
)
def test_document_in_chunks_is_answered_as_at_once(
    whole: Runner, chunked: Runner, words: list[str], top_k: int, longest: int, stride: int
) -> None:
    options = AnswerOptions(top_k=top_k, max_answer_tokens=longest, doc_stride=stride, offsets=("utf16",))
    query = Query("who wrote it", " ".join(words), options)
    assert chunked.results_of([query]) == whole.results_of([query])
