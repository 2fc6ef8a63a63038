import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corelane.domain.ids import cell_of, is_job_id, new_job_id
from corelane.tasks.question_answering.dialects import AnswerRequest
from tests.tools.question_jobs import QuestionRequest


def test_job_ids_sort_by_time_and_name_their_service() -> None:
    ids = [new_job_id(now_ms) for now_ms in (1, 31, 32, 1_700_000_000_000, 1_700_000_000_001)]
    assert ids == sorted(ids)
    assert all(is_job_id(job) and job.startswith("job_0") for job in ids)
    assert cell_of(new_job_id(5, "k")) == "k"


@given(st.text(max_size=40))
def test_other_texts_are_no_job_ids(text: str) -> None:
    assert is_job_id(text) is (text.startswith("job_") and len(text) == 31 and is_job_id(text))


def test_ids_are_never_repeated() -> None:
    assert len({new_job_id(5) for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": []},
        {"question": "q"},
        {"question": "", "context": "c"},
        {"question": " \n", "context": "c"},
        {"question": "q", "context": ""},
        {"question": "q", "context": "c", "items": [{"question": "q", "context": "c"}]},
        {"question": "q", "context": "c", "options": {"top_k": 0}},
        {"question": "q", "context": "c", "options": {"top_k": "3"}},
        {"question": "q", "context": "c", "options": {"no_answer_threshold": float("nan")}},
        {"question": "q", "context": "c", "options": {"topk": 3}},
        {"question": "q", "context": "c", "webhook": {"url": "ftp://x.org/"}},
        {"question": "q", "context": "c", "metadata": {"k": "v" * 513}},
        {"question": "\ud800", "context": "c"},
        {"question": "q", "context": "c", "labels": ["red"]},
        {"items": "all of them"},
    ],
)
def test_bad_requests_are_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QuestionRequest.model_validate(body)


def test_one_item_form_is_the_same_as_a_list_of_one() -> None:
    single = QuestionRequest.model_validate({"id": "a", "question": "q", "context": "c"})
    listed = QuestionRequest.model_validate({"items": [{"id": "a", "question": "q", "context": "c"}]})
    assert single.items == listed.items


def test_whole_numbers_are_taken_as_ids_and_nothing_else_is() -> None:
    item = {"id": 7, "question": "Who?", "context_id": 10**18}
    one = QuestionRequest.model_validate(item | {"contexts": {str(10**18): "Ada."}})
    many = QuestionRequest.model_validate({"items": [item], "contexts": {str(10**18): "Ada."}})
    assert [each.id for request in (one, many) for each in request.items or ()] == ["7", "7"]
    assert AnswerRequest.model_validate({"id": -1, "question": "Who?", "context": "Ada."}).id == "-1"
    for wrong in (True, 7.0, [7]):
        with pytest.raises(ValidationError, match="id"):
            QuestionRequest.model_validate({"items": [{"id": wrong, "question": "Who?", "context": "Ada."}]})
