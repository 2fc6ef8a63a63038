"""SQuAD's scores, against known values and the official script's own words."""

import json
import re
import string
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.errors import InvalidInput
from corelane.tasks.question_answering.squad import (
    best_over,
    exact_match,
    normalise,
    read_questions,
    token_f1,
)

#: Made for these tests, with every field that the published files have.
FILES = Path(__file__).parent / "squad"

WORDS = st.lists(
    st.sampled_from(["the", "a", "An", "Ada", "ada", "It.", "1,000", "—", "'s", "theatre", "a-the-b", "«Ça»", "\t"])
).map(" ".join)


def official_normalise(text: str) -> str:
    lowered = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", lowered).split())


def official_f1(gold: str, predicted: str) -> float:
    gold_tokens, predicted_tokens = official_normalise(gold).split(), official_normalise(predicted).split()
    same = sum((Counter(gold_tokens) & Counter(predicted_tokens)).values())
    if not gold_tokens or not predicted_tokens:
        return int(gold_tokens == predicted_tokens)
    if same == 0:
        return 0
    precision, recall = same / len(predicted_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


@given(st.one_of(st.text(), WORDS))
def test_normalise_agrees_with_the_official_script(text: str) -> None:
    assert normalise(text) == official_normalise(text)


@given(st.one_of(st.text(), WORDS), st.one_of(st.text(), WORDS))
def test_f1_agrees_with_the_official_script_and_is_symmetric(one: str, other: str) -> None:
    assert token_f1(one, other) == pytest.approx(official_f1(other, one))
    assert token_f1(one, other) == token_f1(other, one)
    assert exact_match(one, other) <= token_f1(one, other) <= 1


def test_the_best_gold_answer_counts() -> None:
    assert best_over(exact_match, "1973", ["October 1973", "1973"]) == 1
    assert best_over(token_f1, "in 1973", ["October", "1973"]) == pytest.approx(2 / 3)


def test_gold_answers_that_say_nothing_are_passed_over() -> None:
    assert best_over(exact_match, "", ["the", "cat"]) == 0
    assert best_over(exact_match, "", ["the"]) == 1


@pytest.mark.parametrize(
    "document", [None, [], {}, {"data": []}, {"data": [1]}, {"data": [{"id": "x"}]}, {"data": [{"paragraphs": 3}]}]
)
def test_other_files_are_refused(document: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_questions(document)
    assert not re.search("Error|'[a-z]+' object|indices", str(caught.value))


def test_what_a_file_lacks_is_named() -> None:
    with pytest.raises(InvalidInput, match="neither SQuAD's layout nor XQuAD's: something in it has no 'data'"):
        read_questions({"date": []})


@pytest.mark.parametrize(
    ("name", "may_be_unanswerable", "without_answer", "languages"),
    [
        ("v1.1", False, set(), {None}),
        ("v2.0", True, {"6f0c1a7e0012", "6f0c1a7e0013"}, {None}),
        ("xquad", False, set(), {"en", "de", "ru", "zh"}),
    ],
)
def test_whole_files_of_every_layout_are_read(
    name: str, may_be_unanswerable: bool, without_answer: set[str], languages: set[str | None]
) -> None:
    asked = read_questions(json.loads((FILES / f"{name}.json").read_text(encoding="utf-8")))
    assert (len(asked.questions), asked.may_be_unanswerable) == (4, may_be_unanswerable)
    assert {question.id for question in asked.questions if not question.gold} == without_answer
    assert {question.language for question in asked.questions} == languages
    assert all(text in question.context for question in asked.questions for text in question.gold)
