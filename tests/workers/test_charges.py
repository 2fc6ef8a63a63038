"""What a core computes for an item is what its owner is charged in the end, with the built-in model's tokenizer."""

import pytest
from tokenizers import Tokenizer

from benchmarks.charges import KINDS, measure
from benchmarks.tokenise import MODEL


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize(("name", "text", "question", "stride"), KINDS[1:], ids=[kind[0] for kind in KINDS[1:]])
def test_tokens_computed_are_charged_once_read_and_nearly_so_at_submit(
    tokenizer: Tokenizer, name: str, text: str, question: str, stride: int
) -> None:
    found = measure(name, question, (text * 8000)[:8000], stride, tokenizer)
    assert found["once read"] == 1.0
    assert found["at submit"] <= (2.1 if name == "single letters" else 1.1)
