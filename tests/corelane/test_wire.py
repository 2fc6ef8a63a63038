"""Values are refused for their shape before their entries are looked at: pydantic lists few faults, however many."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from api.routes.rollout import AliasRequest
from corelane.domain.batches import BatchRequest
from corelane.domain.jobs import GivenOptions
from corelane.domain.wire import MOST_UNKNOWN, PIECE, with_few_unknown
from corelane.tasks.dialects import line_form
from corelane.tasks.question_answering.dialects import HfRequest
from corelane.tasks.question_answering.wire import Question
from corelane.tasks.registry import DIALECTS
from tests.tools.question_jobs import QuestionHead, QuestionRequest

OK = {"question": "Who?", "context": "Ada."}
MANY = {f"unknown{number}": 1 for number in range(5000)}
ONES = [1] * 5000
BATCH = {"input_file_id": "f", "endpoint": "/v1/answers", "completion_window": "24h"}
LINE = {"custom_id": "c", "method": "POST", "url": "/v1/answers"}

#: Each place where a caller may send many of something.
PLACES: dict[str, tuple[type[BaseModel], Any]] = {
    "items": (QuestionRequest, {"items": ONES}),
    "items with unknown fields": (QuestionRequest, {"items": [OK | MANY]}),
    "empty questions": (QuestionRequest, {"items": [{"question": "", "context": "c"}] * 5000}),
    "unknown fields": (QuestionRequest, OK | MANY),
    "contexts": (QuestionRequest, OK | {"contexts": MANY}),
    "options": (QuestionRequest, OK | {"options": MANY}),
    "offsets": (QuestionRequest, OK | {"options": {"offsets": ONES}}),
    "metadata": (QuestionRequest, OK | {"metadata": MANY}),
    "events": (QuestionRequest, OK | {"webhook": {"url": "https://a.example", "events": ONES}}),
    "a head": (QuestionHead, MANY | {"contexts": MANY}),
    "inputs": (HfRequest, {"inputs": ONES}),
    "inputs with unknown fields": (HfRequest, {"inputs": [OK | MANY]}),
    "one input": (HfRequest, {"inputs": OK | MANY}),
    "texts": (DIALECTS["/v1/embeddings"].body, {"input": ONES}),
    "texts that are empty": (DIALECTS["/v1/hf/text-classification"].body, {"inputs": [""] * 5000}),
    "documents": (DIALECTS["/v1/rerank"].body, {"query": "Who?", "documents": ONES}),
    "sentences": (
        DIALECTS["/v1/hf/sentence-similarity"].body,
        {"inputs": {"source_sentence": "a", "sentences": ONES}},
    ),
    "a batch": (BatchRequest, BATCH | MANY | {"metadata": MANY}),
    "a batch's line": (line_form(DIALECTS["/v1/answers"]), LINE | {"body": OK | MANY}),
    "weights": (AliasRequest, {"weights": dict.fromkeys(MANY, "x")}),
}


@pytest.mark.parametrize(("model", "value"), PLACES.values(), ids=PLACES.keys())
def test_however_much_is_wrong_few_faults_are_listed(model: type[BaseModel], value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(value)
    assert refused.value.error_count() <= 2 * PIECE + MOST_UNKNOWN


def test_line_with_many_unknown_fields_names_few_and_says_what_it_lacks_rightly() -> None:
    with pytest.raises(ValidationError) as refused:
        Question.model_validate(with_few_unknown(Question, MANY | OK))
    assert [each["type"] for each in refused.value.errors()] == ["extra_forbidden"] * MOST_UNKNOWN


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, 2 * PIECE + 50])
def test_fault_in_a_long_list_has_its_place_in_the_whole(at: int) -> None:
    items = [dict(OK) for _ in range(3 * PIECE)]
    items[at] = {"question": "Who?", "context": 3}  # type: ignore[dict-item]
    with pytest.raises(ValidationError) as refused:
        QuestionRequest.model_validate({"items": items})
    assert [each["loc"] for each in refused.value.errors()] == [("items", at, "context")]


def test_long_list_that_is_good_is_taken_whole_and_in_order() -> None:
    questions = [f"Who {number}?" for number in range(3 * PIECE + 7)]
    taken = QuestionRequest.model_validate({"items": [OK | {"question": question} for question in questions]})
    assert [item.question for item in taken.items or ()] == questions


def test_many_shared_passages_are_taken_and_the_first_that_is_none_is_named() -> None:
    contexts: dict[str, Any] = {f"c{number}": f"Passage {number}." for number in range(3 * PIECE)}
    value = {"items": [{"question": "Who?", "context_id": "c0"}], "contexts": contexts}
    assert QuestionRequest.model_validate(value).contexts == contexts
    contexts["c250"] = "  "
    with pytest.raises(ValidationError) as refused:
        QuestionRequest.model_validate(value)
    assert [each["loc"] for each in refused.value.errors()] == [("contexts", "c250")]


def test_fields_of_a_task_are_kept_where_unknown_fields_are_ignored() -> None:
    options = GivenOptions.model_validate_json('{"top_k": 2}', extra="ignore")
    assert (options.top_k, options.model_dump()) == (2, {"top_k": 2})
