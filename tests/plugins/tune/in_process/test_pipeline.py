"""The pipeline answers as transformers' did: its windows, its scores, its answers, worked out here in plain steps."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile.tasks.question_answering.samples import LIGHTHOUSE, RIVER, TOWER
from corelane import pipeline
from corelane.tasks.question_answering.tune.in_process.pipeline import QuestionAnsweringPipeline
from tests.families.networks import save_tiny
from tests.families.official import Official
from tests.families.rows import Row

QUESTION = "When was the tower built?"

#: A network of each kind of tokenizer, and the longest rows that it is compiled for.
ROWS = (Row("bert"), Row("roberta", config={"max_position_embeddings": 98}), Row("xlm-roberta"))

LENGTH = 80


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.kind)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(request.param, tmp_path_factory.mktemp("model") / request.param.kind)


@pytest.fixture(scope="module")
def answering(model: Path) -> Iterator[QuestionAnsweringPipeline]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORELANE_ARTIFACT_CACHE", "off")
        made = pipeline("question-answering", model=str(model), max_seq_len=LENGTH, doc_stride=16)
    yield made
    made.close()


@pytest.fixture(scope="module")
def official(model: Path) -> Official:
    return Official(model, with_types=model.name == "bert")


def worked_out(official: Official, question: str, context: str, **options: Any) -> list[dict[str, Any]]:
    """Return the answers that transformers' pipeline gave, from its tokenizer and its eager network."""
    top_k, longest = options.get("top_k", 1), options.get("max_answer_len", 15)
    aligned = options.get("align_to_words", True)
    encoded = official.fast(context, add_special_tokens=False)
    found: dict[str, dict[str, Any]] = {}
    null_score = 1e6
    windows = official.read(question, context, options.get("max_seq_len", LENGTH), options.get("doc_stride", 16))
    for window in windows:
        hidden = np.array([place is None for place in window.places])
        hidden[window.null] = False
        shares = []
        for logits in (window.start, window.end):
            weights = np.exp(np.where(hidden, -10_000, logits - logits.max()))
            shares.append(weights / weights.sum())
        start, end = shares
        null_score = min(null_score, start[window.null] * end[window.null])
        spans = [
            (start[first] * end[last], first, last)
            for first in range(len(start))
            for last in range(first, min(len(start), first + longest))
            if window.places[first] is not None and window.places[last] is not None
        ]
        spans.sort(key=lambda span: -span[0])
        for score, first, last in spans[: 2 * top_k + 10 if aligned else top_k]:
            begin, stop = window.places[first][0], window.places[last][1]  # type: ignore[index]
            if aligned:
                begin, stop = word_at(encoded, begin, stop)
            text = context[begin:stop]
            known = found.setdefault(text.lower(), {"score": 0.0, "start": begin, "end": stop, "answer": text})
            known["score"] += score
    answers = list(found.values())
    if options.get("handle_impossible_answer"):
        answers.append({"score": null_score, "start": 0, "end": 0, "answer": ""})
    return sorted(answers, key=lambda answer: -answer["score"])[:top_k]


def word_at(encoded: Any, begin: int, stop: int) -> tuple[int, int]:
    """Return the characters of the words that a span begins and ends in."""
    first, last = encoded.char_to_word(begin), encoded.char_to_word(stop - 1)
    return encoded.word_to_chars(first).start, encoded.word_to_chars(last).end


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 5},
        {"top_k": 3, "align_to_words": False, "max_answer_len": 4},
        {"handle_impossible_answer": True, "top_k": 30},
        {"max_seq_len": 48, "doc_stride": 8, "top_k": 2},
        {"max_answer_len": 1},
    ],
    ids=str,
)
def test_answers_are_those_of_transformers(
    answering: QuestionAnsweringPipeline, official: Official, options: dict[str, Any]
) -> None:
    for context in (TOWER, LIGHTHOUSE, "Tower tower TOWER tower."):
        expected = worked_out(official, QUESTION, context, **options)
        got = answering(question=QUESTION, context=context, **options)
        answers = got if isinstance(got, list) else [got]
        assert [context[answer["start"] : answer["end"]] for answer in answers] == [a["answer"] for a in answers]
        assert [(a["start"], a["end"]) for a in answers] == [(a["start"], a["end"]) for a in expected]
        assert [a["score"] for a in answers] == pytest.approx([a["score"] for a in expected], rel=1e-3, abs=1e-7)


def test_one_question_gives_a_dictionary_and_several_a_list(answering: QuestionAnsweringPipeline) -> None:
    one = answering(question=QUESTION, context=TOWER)
    assert list(one) == ["score", "start", "end", "answer"]
    assert answering([{"question": QUESTION, "context": TOWER}]) == one
    assert answering(question=[QUESTION, QUESTION], context=[TOWER, RIVER])[0] == pytest.approx(one)
    assert len(answering(question=[QUESTION] * 3, context=TOWER, top_k=2)[2]) == 2


def test_iterator_is_answered_as_it_is_read(answering: QuestionAnsweringPipeline) -> None:
    endless = ({"question": QUESTION, "context": f"{TOWER} {number}"} for number in count())
    answers = list(islice(answering(endless, batch_size=2), 3))
    assert len(answers) == 3
    assert next(endless)["context"].endswith(" 4")


def test_wrong_calls_are_refused(answering: QuestionAnsweringPipeline) -> None:
    for wrong in ({"max_seq_len": LENGTH + 1}, {"doc_stride": LENGTH + 1}, {"top_k": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            answering(question=QUESTION, context=TOWER, **wrong)
    with pytest.raises(ValueError, match="max_question_len"):
        answering(question=QUESTION * 40, context=TOWER)
    assert answering(question=QUESTION * 40, context=TOWER, max_question_len=10)["answer"]


def test_only_question_answering_is_done_here(model: Path) -> None:
    with pytest.raises(ValueError, match="text-classification"):
        pipeline("text-classification", model=str(model))
    with pytest.raises(ValueError, match="cuda"):
        pipeline(model=str(model), device="cuda")
    with pytest.raises(ValueError, match="the model's own"):
        pipeline(model=str(model), tokenizer="another")
    with pytest.raises(ValueError, match="temperature"):
        pipeline(model=str(model), temperature=1)


def test_package_is_imported_without_torch() -> None:
    code = "import corelane, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
