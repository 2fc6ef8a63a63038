"""Offsets in code points, UTF-16 and bytes, over many scripts; what JavaScript slices is the answer."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.manifest import Artifact
from corelane.engine.runner import Runner
from corelane.engine.text.offsets import convert_offsets
from corelane.tasks.question_answering.engine.spans import Candidate
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Answer
from tests.tools.fakes import FixedBackend
from tests.tools.javascript import run_javascript
from tests.tools.passages import PASSAGES

BOTH = AnswerOptions(top_k=5, no_answer=False, max_answer_tokens=3, offsets=("utf16", "bytes"))


@pytest.fixture(scope="module")
def results(tiny_artifact: Artifact) -> Iterator[dict[str, dict[str, Any]]]:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    found = runner.results_of([Query(question, context, BOTH) for question, context in PASSAGES.values()])
    yield dict(zip(PASSAGES, found, strict=True))
    runner.close()


@given(st.text(st.characters() | st.sampled_from("a😀é\u0301𠮷")), st.data())
def test_any_stretch_of_any_text_is_found_again_in_both_units(text: str, data: st.DataObject) -> None:
    places = st.integers(0, len(text))
    drawn = [sorted((data.draw(places), data.draw(places))) for _ in range(3)]
    spans = [Candidate(start, end, 0, 0, 0) for start, end in drawn]
    for span, offsets in zip(spans, convert_offsets(text, spans, ("utf16", "bytes")), strict=True):
        expected = text[span.start : span.end]
        start, end = offsets["utf16"]
        assert text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * end].decode("utf-16-le", "surrogatepass") in (
            expected,
            expected.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"),
        )
        start, end = offsets["bytes"]
        assert text.encode("utf-8", "surrogatepass")[start:end].decode("utf-8", "surrogatepass") == expected


@pytest.mark.parametrize("script", PASSAGES)
def test_offsets_hold_in_every_script_and_unit(results: dict[str, dict[str, Any]], script: str) -> None:
    context = PASSAGES[script][1]
    assert results[script]["answers"]
    for answer in results[script]["answers"]:
        assert context[answer["start"] : answer["end"]] == answer["text"] != ""
        start, end = answer["offsets"]["utf16"]
        assert context.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == answer["text"]
        start, end = answer["offsets"]["bytes"]
        assert context.encode()[start:end].decode() == answer["text"]


def test_javascript_slices_the_answer_out_of_its_own_string(results: dict[str, dict[str, Any]]) -> None:
    cases = [{"context": PASSAGES[script][1], "answers": result["answers"]} for script, result in results.items()]
    slices = run_javascript(
        """cases => cases.map(({context, answers}) => answers.map(({offsets}) => [
             context.slice(...offsets.utf16),
             decodeURIComponent(escape(unescape(encodeURIComponent(context)).slice(...offsets.bytes))),
           ]))""",
        cases,
    )
    assert slices == [[[answer["text"]] * 2 for answer in case["answers"]] for case in cases]


def test_units_that_were_not_asked_for_are_not_there(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    options = [AnswerOptions(no_answer=False), AnswerOptions(no_answer=False, offsets=("bytes",))]
    plain, some = runner.results_of([Query("who", "é ada wrote", each) for each in options])
    assert "offsets" not in plain["answer"]
    assert set(some["answer"]["offsets"]) == {"bytes"}
    assert "offsets" not in Answer.model_validate(plain["answer"]).model_dump_json()
    assert set(Answer.model_validate(some["answer"]).model_dump()["offsets"]) == {"bytes"}
