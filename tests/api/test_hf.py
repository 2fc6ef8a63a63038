"""The payload and answers of the removed pipeline, held against what it gave."""

from typing import Any

import pytest

from corelane.domain.jobs import ItemError, JobStatus
from corelane.errors import CorelaneError, QuestionTooLong, WorkerLost
from corelane.tasks.dialects import require_outputs
from corelane.tasks.question_answering.dialects import HfAnswer, HfParameters, HfRequest, answers_of
from corelane.tasks.question_answering.wire import Answer, AnswerResult

ADA, IN_1843 = Answer(text="Ada", start=0, end=3, score=0.5), Answer(text="1843", start=16, end=20, score=0.1)


def result(*answers: Answer, decided: bool = True, none: float = 0.3, **changes: Any) -> AnswerResult:
    given: dict[str, Any] = {"index": 0, "status": JobStatus.SUCCEEDED, "answers": list(answers)}
    return AnswerResult(**given | {"answer": answers[0] if decided else None, "no_answer_score": none} | changes)


def texts(found: HfAnswer | list[HfAnswer]) -> list[str] | str:
    return found.answer if isinstance(found, HfAnswer) else [each.answer for each in found]


@pytest.mark.parametrize(
    ("found", "parameters", "expected"),
    [
        (result(ADA, IN_1843), {}, "Ada"),
        (result(ADA, IN_1843), {"top_k": 2}, ["Ada", "1843"]),
        (result(ADA), {"top_k": 2}, ["Ada"]),
        (result(decided=False), {"top_k": 2}, [""]),
        (result(ADA, IN_1843), {"top_k": 3, "handle_impossible_answer": True}, ["Ada", "", "1843"]),
        (result(ADA, none=0.9), {"handle_impossible_answer": True}, "Ada"),
        (result(ADA, decided=False), {"handle_impossible_answer": True}, ""),
        (result(ADA, decided=False), {"handle_impossible_answer": True, "top_k": 2}, ["", "Ada"]),
        (result(decided=False), {}, ""),
    ],
)
def test_answers_have_the_pipelines_form(found: AnswerResult, parameters: dict, expected: str | list[str]) -> None:
    assert texts(answers_of(found, HfParameters(**parameters))) == expected


def test_no_answer_stands_at_nought_with_its_score() -> None:
    none = answers_of(result(ADA, decided=False), HfParameters(handle_impossible_answer=True))
    assert none == HfAnswer(score=0.3, start=0, end=0, answer="")


def test_defaults_are_the_pipelines() -> None:
    options = HfRequest.model_validate({"inputs": {"question": "Who?", "context": "Ada."}}).parameters.options
    assert (options.top_k, options.max_answer_tokens, options.doc_stride, options.no_answer) == (1, 15, 128, False)


def test_parameters_of_transformers_pipeline_are_taken_with_their_meaning() -> None:
    ask = {"inputs": {"question": "Who?", "context": "Ada."}}
    given = {"max_seq_len": 64, "max_question_len": 8, "align_to_words": True, "truncation": "error"}
    options = HfRequest.model_validate(ask | {"parameters": given}).parameters.options
    assert {name: getattr(options, name) for name in given} == given
    with pytest.raises(ValueError, match=r"`doc_stride` \(65\) is larger than `max_seq_len` \(64\)"):
        HfRequest.model_validate(ask | {"parameters": {"max_seq_len": 64, "doc_stride": 65}})


@pytest.mark.parametrize("name", ["padding", "topk", "handle_long_context", "color"])
def test_parameter_without_a_meaning_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        HfRequest.model_validate({"inputs": {"question": "Who?", "context": "Ada."}, "parameters": {name: 1}})


@pytest.mark.parametrize(
    ("code", "raised"), [("question_too_long", QuestionTooLong), ("worker_lost", WorkerLost), ("new", CorelaneError)]
)
def test_first_failed_input_is_the_whole_requests_error(code: str, raised: type[CorelaneError]) -> None:
    failed = result(status=JobStatus.FAILED, decided=False, error=ItemError(code=code, detail="it is so"))
    with pytest.raises(raised, match="input 1: it is so"):
        require_outputs([result(ADA).model_dump(), failed.model_dump()])
