from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import NFC, BertNormalizer
from tokenizers.pre_tokenizers import ByteLevel

from corelane.artifacts.manifest import TOKENIZER_NAME
from corelane.engine.text.cache import Context
from corelane.engine.text.words import LONGEST_WORD, PART, Words, cuts_at_marks

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


@given(TEXTS)
def test_parts_of_a_text_are_the_text(text: str) -> None:
    assert "".join(PART.findall(text)) == text


def test_words_met_before_are_not_tokenised_again() -> None:
    words = Words(built_in())
    words.read(["The river was red."])
    known = len(words)
    words.read(["the river was RED ."])
    assert (known, len(words)) == (5, 6)


def test_no_more_words_are_kept_than_may_be_and_none_that_is_long() -> None:
    words = Words(built_in(), most=10)
    for number in range(50):
        words.read([" ".join(f"word{number}x{n}" for n in range(number))])
        assert len(words) <= 10
    many = Words(built_in())
    many.read(["x" * LONGEST_WORD, "y" * (LONGEST_WORD + 1)])
    assert len(many) == 1


def test_text_that_spells_a_special_token_is_read_whole() -> None:
    words = Words(built_in())
    [context] = words.read(["a [MASK] b"])
    assert (len(context), len(words)) == (3, 0)


def test_tokenizers_that_look_further_than_a_word_are_given_whole_texts() -> None:
    byte_level, composing, marked, normalized = (built_in() for _ in range(4))
    byte_level.pre_tokenizer = ByteLevel(add_prefix_space=False)
    composing.normalizer = NFC()
    marked.add_special_tokens([AddedToken("ada", normalized=False)])
    normalized.add_special_tokens([AddedToken("<ada>", normalized=True)])
    tokenizers = [built_in(), byte_level, composing, marked, normalized]
    assert [cuts_at_marks(tokenizer) for tokenizer in tokenizers] == [True, False, False, False, False]
    for tokenizer in tokenizers[1:]:
        words = Words(tokenizer)
        for text in ("ada wrote <ada>, e\u0301", ""):
            assert_as_the_tokenizer_says(tokenizer, text, words.read([text])[0])
        assert len(words) == 0
