"""Answers begin and end where a character does, as people see it."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from corelane.tasks.question_answering.engine.spans import whole_characters

#: What people see as one character, in many code points.
CHARACTERS = [
    *("e\u0301", "a\u0328\u0301", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f"),
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f469\U0001f3fd\u200d\U0001f680",
    *("1\ufe0f\u20e3", "\u0915\u094d\u0937\u093f", "\u1100\u1161\u11a8", "\u0e01\u0e33"),
]


@pytest.mark.parametrize("character", CHARACTERS)
def test_no_character_is_cut(character: str) -> None:
    for before, after in (("", ""), ("won ", " today"), ("\U0001f1eb\U0001f1f7", "\U0001f1eb\U0001f1f7")):
        text, first, last = before + character + after, len(before), len(before) + len(character)
        for cut in range(first + 1, last + 1):
            assert whole_characters(text, first, cut) == (first, last)
        for cut in range(first, last):
            assert whole_characters(text, cut, last) == (first, last)


@given(st.lists(st.sampled_from([*CHARACTERS, "a", " ", ".", "\u4e2d", "\uac01"]), min_size=1, max_size=40), st.data())
def test_ends_of_answers_are_bounds_of_characters(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    first, last = whole_characters(text, start, end)
    bounds = {0} | {found.end() for found in regex.finditer(r"\X", text)}
    assert {first, last} <= bounds
    assert not any(first < bound <= start or end <= bound < last for bound in bounds)


def test_plain_text_is_left_as_it_is() -> None:
    assert whole_characters("Ada wrote it", 0, 3) == (0, 3)
    assert whole_characters("", 0, 0) == (0, 0)


def test_text_without_an_end_of_marks_is_no_trap() -> None:
    text = "a" + "\u0301" * 100_000
    first, last = whole_characters(text, 50_000, 50_001)
    assert first <= 50_000 < last <= len(text)


def test_flags_pair_from_the_first_of_a_long_run() -> None:
    flags = "\U0001f1e9\U0001f1ea" * 200
    for before in ("", "a", "ab"):
        text, first = before + flags, len(before)
        assert whole_characters(text, first + 301, first + 302) == (first + 300, first + 302)
        assert whole_characters(text, first + 300, first + 301) == (first + 300, first + 302)
    assert whole_characters("\U0001f1e9\U0001f1ea\ufe0f!", 0, 1) == (0, 3)
