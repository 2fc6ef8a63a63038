from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from corelane.artifacts import TOKENIZER_NAME
from corelane.engine.contexts import Context
from corelane.engine.words import Words

BUILT_IN = Path(__file__).parent.parent.parent / "models" / "qa-minilm" / TOKENIZER_NAME

STRETCHES = (
    st.sampled_from(["the", " The", "river ", "[MASK]", "[mask]", "[", "MASK", "1889", "Ada's", "x" * 40, "x" * 120])
    | st.sampled_from(" \n\t\r\u3000\u200b\u0000\x1c\u0085\u00a0\u2028'-.,_[]$€°")
    | st.sampled_from("aÀéİßΣς東ﬁ½한\u0301\u0338\u093f\u1100\u1161👩\u200d")
    | st.text(st.characters(codec="utf-8"), max_size=5)
)

TEXTS = st.lists(STRETCHES, max_size=20).map("".join)


def built_in() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(BUILT_IN))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def cased(**options: bool) -> Tokenizer:
    tokenizer = built_in()
    tokenizer.normalizer = BertNormalizer(**options)
    return tokenizer


def bare() -> Tokenizer:
    tokenizer = built_in()
    tokenizer.normalizer = None
    return tokenizer


TOKENIZERS = {
    "uncased": built_in(),
    "cased": cased(lowercase=False, strip_accents=False),
    "accents kept": cased(lowercase=True, strip_accents=False, clean_text=False, handle_chinese_chars=False),
    "no normalizer": bare(),
}


def assert_as_the_tokenizer_says(tokenizer: Tokenizer, text: str, context: Context) -> None:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert context.ids.tolist() == encoding.ids
    assert [tuple(place) for place in context.places.tolist()] == encoding.offsets
    assert context.places.shape == (len(encoding.ids), 2)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(st.lists(TEXTS, max_size=4))
def test_texts_are_read_as_the_tokenizer_reads_them(kind: str, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    words = Words(tokenizer, most=20)
    for _ in range(2):
        for text, context in zip(texts, words.read(texts), strict=True):
            assert_as_the_tokenizer_says(tokenizer, text, context)
