import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.text.tokenize import CHARS_PER_TOKEN, TEXT_TOKENS, TextTokens, TokenCache

#: Whose contexts they are.
OWNER = "ada"


def make_context(tokens: int) -> TextTokens:
    return TextTokens(np.arange(tokens, dtype=np.int32), np.zeros((tokens, 2), dtype=np.int32))


def test_least_lately_used_makes_way() -> None:
    contexts = TokenCache(2 * (TEXT_TOKENS + 50))
    for text in "ab":
        contexts.keep((OWNER, text), make_context(50))
    contexts.find((OWNER, "a"))
    contexts.keep((OWNER, "c"), make_context(50))
    assert [text for text in "abc" if contexts.find((OWNER, text))] == ["a", "c"]


def test_context_larger_than_the_bound_is_not_kept_and_pushes_nothing_out() -> None:
    contexts = TokenCache(100)
    contexts.keep((OWNER, "a"), make_context(50))
    contexts.keep((OWNER, "huge"), make_context(101))
    assert contexts.find((OWNER, "huge")) is None
    assert contexts.find((OWNER, "a")) is not None


def test_text_without_tokens_counts_by_its_length() -> None:
    contexts = TokenCache(100)
    blank = [("\u200b" * n) * CHARS_PER_TOKEN for n in (50, 60)]
    for text in blank:
        contexts.keep((OWNER, text), make_context(0))
    assert [contexts.find((OWNER, text)) is not None for text in blank] == [False, True]


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 60)), max_size=60), st.integers(0, 200))
def test_never_more_is_kept_than_the_bound(texts: list[tuple[str, int]], bound: int) -> None:
    contexts = TokenCache(bound)
    for text, tokens in texts:
        contexts.keep((OWNER, text), make_context(tokens))
        kept = {other: found for other, _ in texts if (found := contexts.find((OWNER, other))) is not None}
        assert sum(TEXT_TOKENS + len(context) for context in kept.values()) <= bound
