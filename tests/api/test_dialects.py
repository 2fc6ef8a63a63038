"""Other services' clients are answered in their own forms, each by a model of its task."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cohere
import pytest
import redis
from fastapi.testclient import TestClient
from openai import OpenAI

from api import jobs
from corelane.settings import Settings
from corelane.tasks.dialects import listed
from corelane.tasks.registry import DIALECTS, TASKS
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import Bench
from tests.tools.others_clients import check_cohere, check_hugging_face, check_openai
from tests.tools.told_core import TOO_LONG, telling
from tests.tools.waiting import eventually

#: The task of each route of Text Embeddings Inference that is also at ``/tei/{model}``.
MAIN = {"/embed": "feature-extraction", "/predict": "text-classification", "/rerank": "text-ranking"}

AT_ONCE, SLOW = {"Prefer": "wait=0"}, {"Prefer": "wait=1"}
FEATURES = "/v1/hf/feature-extraction"
ASKED = {"inputs": {"question": "Who?", "context": "Ada."}}


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
    refused = told.http.post(path, json=dict(DIALECTS[path].example), params={"model": "no-such"})
    assert (refused.status_code, refused.json()["code"]) == (422 if DIALECTS[path].is_own else 404, "unknown_model")
    assert "no-such" in refused.json()["detail"]
    error = refused.json().get("error")
    if DIALECTS[path].errors_of == "openai":
        code = "unknown_model" if DIALECTS[path].is_own else "model_not_found"
        assert (error["code"], error["type"]) == (code, "invalid_request_error")
    else:
        is_cohere = DIALECTS[path].errors_of == "cohere"
        assert refused.json()["detail"] == (refused.json()["message"] if is_cohere else error)


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
    wrong = told.http.post("/v2/rerank", json=body | {"documents": ["a", 5]})
    assert wrong.status_code == 422
    assert wrong.json()["detail"].startswith("documents.1: a text is wanted")


def test_documents_of_cohere_may_have_more_fields_and_be_blank(told: Service) -> None:
    given = [{"title": "c", "text": "a", "page": 3}, "", {"title": "a", "text": "b", "year": "1889"}]
    with cohere.Client("somebody", base_url=told.url) as client:
        ask: Any = {"model": "text-ranking", "query": "a b", "documents": given, "return_documents": True}
        plain = client.rerank(**ask)
        by_both = client.rerank(**ask, rank_fields=["title", "text"])
    assert [each.index for each in plain.results] == [0, 2, 1]
    assert [each.index for each in by_both.results] == [2, 0, 1]
    assert [each.document and each.document.model_dump() for each in by_both.results] == [
        given[2],
        given[0],
        {"text": ""},
    ]


PAIR = {"text": "aab", "text_pair": "ba"}


@pytest.mark.parametrize("inputs", [PAIR, [PAIR], [["aab", "ba"]]])
def test_pairs_are_taken_as_clients_of_hugging_face_send_them(told: Service, inputs: Any) -> None:
    body = {"inputs": inputs, "options": {"wait_for_model": True, "use_cache": False}}
    found = told.http.post("/v1/hf/text-classification", json=body)
    assert [[each["label"] for each in labels] for labels in found.json()] == [["a", "b"]], found.text
    mixed = told.http.post("/v1/hf/text-classification", json={"inputs": ["ajj", *listed(inputs), ["aj"]]}).json()
    assert [labels[0]["label"] for labels in mixed] == ["joy", "a", "anger"]


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("feature-extraction", {"truncate": True, "truncation_direction": "Right"}),
        ("text-classification", {"parameters": {"truncation": True}}),
        ("token-classification", {"parameters": {"truncation": True}}),
        ("zero-shot-classification", {"parameters": {"candidate_labels": ["a1"], "hypothesis_template": "It is {0}."}}),
        ("sentence-similarity", {"parameters": {"truncate": True}}),
        ("question-answering", {}),
    ],
)
def test_what_cuts_nothing_is_taken(told: Service, task: str, more: Any) -> None:
    body = dict(DIALECTS[f"/v1/hf/{task}"].example) | {"options": {"wait_for_model": True}} | more
    assert told.http.post(f"/v1/hf/{task}", json=body).status_code == 200


HF_TEXT, HF_ZERO = "hf/text-classification", "hf/zero-shot-classification"

WRONG: dict[str, tuple[str, Any, str, str]] = {
    "another task": ("embeddings", {"model": "text-ranking", "input": "a"}, "wrong_task", "text-ranking, not"),
    "one text fails": ("embeddings", {"input": ["a", TOO_LONG]}, "text_too_long", "input 1: the text has 9"),
    "three of a pair": (HF_TEXT, {"inputs": [["a", "b", "c"]]}, "invalid_input", "inputs.0: a JSON object is wanted"),
    "no field to rank by": (
        "rerank",
        {"query": "a", "documents": ["a", {"title": "b"}]},
        "invalid_input",
        "document 1",
    ),
    "no text": (
        "rerank",
        {"query": "a", "documents": ["a", {"text": 5}]},
        "invalid_input",
        "document 1 has no text as",
    ),
    "blank": (
        "rerank",
        {"query": "a", "documents": ["", {"text": " "}]},
        "invalid_input",
        "at least one must hold more",
    ),
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
    if path == "embeddings":
        assert problem["error"]["message"] == problem["detail"]
    else:
        assert problem["message" if path == "rerank" else "error"] == problem["detail"]


@pytest.fixture
def paused(told: Service) -> Service:
    """Return a service that takes work and does none."""
    told.http.put("/v1/pauses/owner/public").raise_for_status()
    return told


def resume(service: Service) -> None:
    service.http.delete("/v1/pauses/owner/public").raise_for_status()


def jobs_of(service: Service, **headers: str) -> list[str]:
    return [job["status"] for job in service.http.get("/v1/jobs", headers=headers).json()["data"]]


def ask_openai(url: str) -> Any:
    with OpenAI(base_url=f"{url}/v1", api_key="somebody", max_retries=20, default_headers=AT_ONCE) as client:
        return client.embeddings.create(model="feature-extraction", input=["a", "b"]).data


def ask_cohere(url: str) -> Any:
    options: Any = {"max_retries": 20, "additional_headers": AT_ONCE}
    with cohere.ClientV2("somebody", base_url=url) as client:
        return client.rerank(model="text-ranking", query="a", documents=["a", "b"], request_options=options).results


@pytest.mark.parametrize("ask", [ask_openai, ask_cohere])
def test_late_answer_is_asked_for_again_by_stock_clients_and_made_once(paused: Service, ask: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, paused.url)
        eventually(lambda: late_answers(paused) > 1)
        resume(paused)
        assert len(asked.result()) == 2
    assert jobs_of(paused, Authorization="Bearer somebody") == ["succeeded"]


def late_answers(service: Service) -> int:
    found = re.findall(r'corelane_problems_total{code="not_in_time"} (\d+)', service.http.get("/metrics").text)
    return int(*found)


def test_late_answer_is_503_in_each_dialect_and_canceled_unless_it_is_asked_for_again(
    paused: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "AGAIN_S", 0.05)
    paths = [path for path, dialect in DIALECTS.items() if not dialect.is_own]
    below = {f"/tei/{each}": path for path, each in MAIN.items()}
    for path, of in ({path: path for path in paths} | below).items():
        late = paused.http.post(path, json=dict(DIALECTS[of].example), headers=AT_ONCE)
        assert (late.status_code, late.json()["code"], late.headers["Retry-After"]) == (503, "not_in_time", "1")
        problem, detail, form = late.json(), late.json()["detail"], DIALECTS[of].errors_of
        assert "send the same request again" in detail
        forms = {"cohere": {"message": detail}, "hugging face": {"error": detail}}
        forms |= {"tei": {"error": detail, "error_type": "Unhealthy"}}
        forms |= {
            "openai": {"error": {"message": detail, "type": "server_error", "code": "not_in_time", "param": None}}
        }
        assert forms[form].items() <= problem.items(), path
    eventually(lambda: jobs_of(paused) == ["canceled"] * len(paths + list(below)))


def test_equal_requests_that_are_late_keep_one_job(paused: Service) -> None:
    with ThreadPoolExecutor(2) as pool:
        late = [pool.submit(paused.http.post, FEATURES, json={"inputs": "a"}, headers=SLOW) for _ in range(2)]
        assert [each.result().status_code for each in late] == [503, 503]
    assert sorted(jobs_of(paused)) == ["canceled", "queued"]


def test_late_job_is_canceled_when_its_process_stops(settings: Settings, raw: redis.Redis, bell: str) -> None:
    bench = Bench(settings, raw, bell)
    for service in run_service(settings, raw, bell):
        assert service.http.post("/v1/hf/question-answering", json=ASKED, headers=AT_ONCE).status_code == 503
        [job] = [each["id"] for each in service.http.get("/v1/jobs").json()["data"]]
    assert bench.get(job).status == "canceled"


def test_nothing_is_ready_where_there_is_no_model(api: TestClient) -> None:
    response = api.post("/v1/embeddings", json={"input": "a"})
    assert (response.status_code, response.json()["code"]) == (503, "not_ready")
