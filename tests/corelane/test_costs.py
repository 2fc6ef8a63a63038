"""What items are estimated to cost."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.dispatch import (
    MIN_TEXT_SHARE,
    SPECIAL_TOKENS,
    WINDOW_TOKENS,
    count_windows,
    estimate,
    estimate_tokens,
    measure,
)
from corelane.settings import Settings
from corelane.tasks.estimating import Estimator
from corelane.tasks.question_answering.engine.windows import cut_windows
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question

ROOM = WINDOW_TOKENS - SPECIAL_TOKENS


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("abcd" * 100, 100),
        ("The river, red at dusk, was wide. " * 10, 85),
        ("?!.," * 80, 320),
        ('{"a": [1, 2]}, ' * 20, 200),
        ("東京" * 50, 100),
        ("é" * 120, 120 // 4 + 120 // 2),
        ("short", 61),
    ],
)
def test_token_estimate_follows_the_script(text: str, tokens: int) -> None:
    assert abs(estimate_tokens("", text, 128) - tokens - 3) <= max(2, tokens // 3)


@given(st.integers(1, 250), st.integers(1, 20_000), st.integers(0, 400))
def test_estimate_of_known_tokens_is_the_sum_of_the_windows_that_are_cut(
    question: int, context: int, stride: int
) -> None:
    windows = cut_windows(question, context, max_length=WINDOW_TOKENS, specials=SPECIAL_TOKENS, doc_stride=stride)
    assert estimate(question, context, stride) == max(64, sum(window.length for window in windows))


@given(st.integers(1, 20_000), st.integers(int(WINDOW_TOKENS * MIN_TEXT_SHARE), ROOM), st.integers(0, 400))
def test_windows_are_counted_as_they_are_cut(context: int, room: int, stride: int) -> None:
    cut = cut_windows(ROOM - room, context, max_length=WINDOW_TOKENS, specials=SPECIAL_TOKENS, doc_stride=stride)
    assert count_windows(context, room, stride) == len(list(cut))


def test_wide_overlap_costs_more_windows() -> None:
    text = "The river was red at dusk. " * 5000
    costs = [estimate_tokens("Who?", text, stride) for stride in (0, 128, 400)]
    assert [round(cost / measure(text), 1) for cost in costs] == [1.0, 1.5, 2.0]


def test_longest_item_fits_the_bounds_of_a_default_service() -> None:
    settings = Settings()
    question = "why " * (settings.max_question_chars // 4)
    for text in ("?!.,", "東京の川", "red "):
        context = text * (settings.max_context_chars // 4)
        assert estimate_tokens(question, context, 400) < settings.max_owner_tokens


def test_shared_context_is_computed_once_for_each_question() -> None:
    contexts = {"a": "The river was red. " * 1000, "b": "ada"}
    estimator = Estimator(contexts, AnswerOptions())
    items = [Question(question=f"Who was {n}?", context_id=name) for n in range(3) for name in contexts]
    alone = [Question(question=item.question, context=contexts[item.context_id or ""]) for item in items]
    assert [estimator.tokens(item) for item in items] == [estimator.tokens(item) for item in alone]
    assert list(chain({estimator.tokens(item) for item in items[1::2]})) == [64]
