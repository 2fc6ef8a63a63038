from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.errors import QuestionTooLong, TooManyWindows
from corelane.tasks.question_answering.engine.windows import cut_windows

SPECIALS = 3


@given(
    question=st.integers(0, 250),
    context=st.integers(0, 5000),
    max_length=st.integers(32, 512),
    stride=st.integers(0, 400),
)
def test_windows_cover_every_token_in_order_and_fit(question: int, context: int, max_length: int, stride: int) -> None:
    try:
        windows = list(cut_windows(question, context, max_length=max_length, specials=SPECIALS, doc_stride=stride))
    except QuestionTooLong:
        assert max_length - SPECIALS - question < max_length / 4
        return
    room = max_length - SPECIALS - question
    assert windows[0].start == 0
    assert windows[-1].end == context
    assert all(window.length == SPECIALS + question + window.end - window.start <= max_length for window in windows)
    for before, after in pairwise(windows):
        assert before.start < after.start <= before.end < after.end
        assert before.end - after.start == min(stride, room // 2)


def test_short_context_is_one_window() -> None:
    [window] = cut_windows(10, 40, max_length=64, specials=SPECIALS, doc_stride=16)
    assert (window.start, window.end, window.length) == (0, 40, 53)


def test_question_that_leaves_no_room_is_refused_with_its_limit() -> None:
    with pytest.raises(QuestionTooLong, match=r"400 tokens.*leave room for 285"):
        list(cut_windows(400, 10, max_length=384, specials=SPECIALS, doc_stride=128))


def test_passage_of_too_many_windows_is_refused_with_what_to_do() -> None:
    with pytest.raises(TooManyWindows, match=r"9,000 tokens, which take 36 windows.*35 are read.*CORELANE_MAX_WINDOWS"):
        list(cut_windows(10, 9000, max_length=384, specials=SPECIALS, doc_stride=120, most=35))
    assert len(list(cut_windows(10, 9000, max_length=384, specials=SPECIALS, doc_stride=120, most=36))) == 36
