"""Results in stored form, and what is read of them."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.store.jobs.stored_results import decode_results, encode_results
from corelane.tasks.feature_extraction.wire import EmbeddingOptions

FLOATS, BASE64 = EmbeddingOptions(), EmbeddingOptions(encoding="base64")


def view(vector: np.ndarray) -> memoryview:
    return vector.astype("<f4").data


@given(
    vectors=st.lists(
        st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), max_size=8
    ),
    text=st.text(),
)
def test_vectors_are_the_same_bytes_when_they_are_read(vectors: list[list[float] | None], text: str) -> None:
    results = [
        {"id": text, "embedding": each and view(np.array(each, np.float32)), "index": index}
        for index, each in enumerate(vectors)
    ]
    blob = encode_results(results)
    found = decode_results(blob, BASE64)
    assert [each["id"] for each in found] == [text] * len(vectors)
    for each, expected in zip(found, vectors, strict=True):
        if expected is None:
            assert each["embedding"] is None
        else:
            assert base64.b64decode(each["embedding"]) == np.array(expected, "<f4").tobytes()
    assert [each["index"] for each in decode_results(blob, None)] == list(range(len(vectors)))


def test_a_number_takes_four_bytes() -> None:
    vector = np.full(384, 0.1, np.float32)
    assert len(encode_results([{"embedding": view(vector)}])) < 384 * 4 + 50


def test_results_without_vectors_are_plain_json() -> None:
    results = [{"answer": "Ada\nwrote it", "score": 0.5}]
    assert json.loads(encode_results(results)) == decode_results(encode_results(results), FLOATS) == results


def test_a_value_without_a_stored_form_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_results([{"embedding": {1, 2}}])


@pytest.mark.parametrize("scale", [1.0, 0.01, 300.0])
def test_numbers_that_are_shown_are_short_and_near(scale: float) -> None:
    vector = (np.random.default_rng(1).normal(size=384) * scale).astype(np.float32)
    assert shown(vector) == pytest.approx(vector, abs=1e-6 * scale)
    unit = vector / np.linalg.norm(vector)
    assert len(json.dumps(shown(unit))) < 384 * 13
    assert shown(np.zeros(3)) == [0, 0, 0]


def shown(vector: np.ndarray) -> list[float]:
    [result] = decode_results(encode_results([{"embedding": view(vector)}]), FLOATS)
    numbers: list[float] = result["embedding"]
    return numbers
