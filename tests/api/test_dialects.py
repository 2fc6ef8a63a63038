"""Other services' clients are answered in their own forms, each by a model of its task."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from corelane.tasks.registry import DIALECTS, TASKS
from tests.api.conftest import Service
from tests.others_clients import check_cohere, check_hugging_face, check_openai
from tests.told_core import TOO_LONG, telling


@pytest.fixture
def told(service: Service) -> Iterator[Service]:
    with telling(service.bench):
        yield service


def test_stock_clients_find_what_they_expect(told: Service) -> None:
    check_openai(told.url, "feature-extraction", 2)
    found = check_hugging_face(told.url, {name: name for name in TASKS})
    assert [each.word for each in found["token-classification"]] == ["Ada", "Lovelace", "London."]
    check_cohere(told.url, "text-ranking")


@pytest.mark.parametrize("path", DIALECTS)
def test_example_of_each_dialect_is_answered_without_a_model_named(told: Service, path: str) -> None:
    response = told.http.post(path, json=dict(DIALECTS[path].example))
    assert response.status_code == 200, response.text
    late = told.http.post(path, json=dict(DIALECTS[path].example), params={"wait": 0, "model": "no-such"})
    assert (late.status_code, late.json()["code"]) == (422, "unknown_model")
    assert "no-such" in late.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("hf/text-classification", {"inputs": "aj", "parameters": {}}, [["anger", "joy"]]),
        (
            "hf/text-classification",
            {"inputs": ["aaj", "ajj"], "parameters": None},
            [["anger", "joy"], ["joy", "anger"]],
        ),
        ("hf/zero-shot-classification", {"inputs": "ab", "parameters": {"candidate_labels": "b1, a1"}}, ["b1", "a1"]),
        (
            "hf/zero-shot-classification",
            {"inputs": ["abb", "aab"], "parameters": {"candidate_labels": ["a1", "b1"], "multi_label": None}},
            [["b1", "a1"], ["a1", "b1"]],
        ),
    ],
)
def test_labels_stand_in_the_form_of_their_pipeline(told: Service, path: str, body: Any, expected: Any) -> None:
    def names(found: Any) -> Any:
        return [names(each) for each in found] if isinstance(found, list) else found["label"]

    assert names(told.http.post(f"/v1/{path}", json=body).json()) == expected


def test_entities_have_the_name_of_their_strategy(told: Service) -> None:
    body = {"inputs": ["Ada", "x"], "parameters": {"aggregation_strategy": "none"}}
    found = told.http.post("/v1/hf/token-classification", json=body).json()
    assert found == [[{"entity": "PER", "score": 0.9, "word": "Ada", "start": 0, "end": 3}], []]


def test_ranking_holds_what_cohere_and_jina_read(told: Service) -> None:
    body = {"query": "a b", "documents": ["c", "a b", "a"], "top_n": 2, "return_documents": None, "rank_fields": None}
    found = told.http.post("/v1/rerank", json=body | {"priority": 7}).json()
    assert found["results"] == [{"index": 1, "relevance_score": 1.0}, {"index": 2, "relevance_score": 0.5}]
    assert (found["model"], found["meta"]["api_version"]) == ("text-ranking@0", {"version": "1"})
    wrong = told.http.post("/v2/rerank", json=body | {"documents": ["a", {"title": "b"}]})
    assert wrong.status_code == 422
    assert wrong.json()["detail"].startswith("documents.1: a text is wanted")


HF_TEXT, HF_ZERO = "hf/text-classification", "hf/zero-shot-classification"

WRONG: dict[str, tuple[str, Any, str, str]] = {
    "another task": ("embeddings", {"model": "text-ranking", "input": "a"}, "wrong_task", "text-ranking, not"),
    "one text fails": ("embeddings", {"input": ["a", TOO_LONG]}, "text_too_long", "input 1: the text has 9"),
    "cut": ("hf/feature-extraction", {"inputs": "a", "truncate": True}, "invalid_input", "nothing is ever cut off"),
    "no labels": (HF_ZERO, {"inputs": "a", "parameters": {}}, "invalid_input", "candidate_labels"),
    "no meaning": ("hf/token-classification", {"inputs": "a", "parameters": {"stride": 4}}, "invalid_input", "stride"),
    "unknown": (HF_TEXT, {"inputs": "a", "parameters": {"color": 4}}, "invalid_input", "top_k"),
    "nothing": ("rerank", {"query": "a", "documents": []}, "invalid_input", "at least 1 entry"),
}


@pytest.mark.parametrize(("path", "body", "code", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_words_and_as_each_client_reads_it(
    told: Service, path: str, body: Any, code: str, said: str
) -> None:
    response = told.http.post(f"/v1/{path}", json=body)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, code)
    assert said in problem["detail"]
    assert ("error" in problem) == (path == "embeddings")


def test_nothing_is_ready_where_there_is_no_model(api: TestClient) -> None:
    response = api.post("/v1/embeddings", json={"input": "a"})
    assert (response.status_code, response.json()["code"]) == (503, "not_ready")
