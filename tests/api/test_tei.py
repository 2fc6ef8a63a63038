"""Clients of Text Embeddings Inference are answered as it would, at the root and below ``/tei/{model}``."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient
from haystack import Document
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

from corelane.store import keys
from corelane.tasks.registry import TASKS
from tests.api.conftest import Service
from tests.tools.others_clients import check_tei
from tests.tools.told_core import TOO_LONG, telling

EMBED, PREDICT, RANK = "/tei/feature-extraction", "/tei/text-classification", "/tei/text-ranking"


@pytest.fixture
def told(service: Service) -> Iterator[Service]:
    with telling(service.bench):
        yield service


def test_stock_clients_have_one_address_for_each_model(told: Service) -> None:
    check_tei(told.url, {name: name for name in TASKS})


def test_haystack_embeds_and_ranks(told: Service) -> None:
    embedder = HuggingFaceAPITextEmbedder("text_embeddings_inference", {"url": told.url + EMBED}, token=None)
    [vector] = told.http.post("/embed", json={"inputs": "a e"}).json()
    assert embedder.run(text="a e")["embedding"] == pytest.approx(vector, abs=1e-6)
    documents = [Document(content=text) for text in ("a", "b c", "b")]
    found = HuggingFaceTEIRanker(url=told.url + RANK, top_k=2, token=None).run("b c", documents)["documents"]
    assert [(each.content, each.score) for each in found] == [("b c", 1.0), ("b", 0.5)]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("aj", ["anger", "joy"]),
        (["ajj"], ["joy", "anger"]),
        (["aab", "ba"], ["a", "b"]),
        ([["ajj"], ["aab", "ba"]], [["joy", "anger"], ["a", "b"]]),
    ],
)
def test_one_text_or_pair_has_its_labels_and_several_have_a_list_of_them(
    told: Service, inputs: Any, expected: Any
) -> None:
    def names(found: Any) -> Any:
        return [names(each) for each in found] if isinstance(found, list) else found["label"]

    assert names(told.http.post("/predict", json={"inputs": inputs}).json()) == expected
    assert names(told.http.post(PREDICT, json={"inputs": inputs, "truncate": None}).json()) == expected


def test_text_is_cut_if_a_request_asks_for_it_and_the_reply_says_how_much(told: Service) -> None:
    for path in (EMBED, PREDICT, "/v1/hf/feature-extraction"):
        whole = told.http.post(path, json={"inputs": TOO_LONG})
        assert (whole.status_code, whole.json()["code"]) == (422 if "hf" in path else 413, "text_too_long")
        cut = told.http.post(path, json={"inputs": TOO_LONG, "truncate": True})
        assert (cut.status_code, cut.headers["x-cut-tokens"]) == (200, "1"), cut.text
        assert "x-compute-tokens" in cut.headers
        assert "x-cut-tokens" not in told.http.post(path, json={"inputs": "a", "truncate": True}).headers
    for parameters in ({"truncation": True}, {"truncation": "only_first"}, {"truncate": True}, {"long": "cut"}):
        found = told.http.post("/v1/hf/text-classification", json={"inputs": TOO_LONG, "parameters": parameters})
        assert found.headers["x-cut-tokens"] == "1"


@pytest.mark.parametrize("more", [{"normalize": True}, {"dimensions": 2}, {"long": "mean"}])
def test_vectors_of_tokens_are_as_the_model_makes_them(told: Service, more: dict[str, Any]) -> None:
    [first, second] = told.http.post("/embed_all", json={"inputs": ["a", "a e"], "truncate": True}).json()
    assert [len(first), len(second), {len(each) for each in first + second}] == [3, 4, {3}]
    refused = told.http.post("/embed_all", json={"inputs": "a"} | more)
    assert refused.status_code == 422
    assert "tokens are as the model has them" in refused.json()["error"]


def test_texts_are_cut_into_tokens_with_special_ones_unless_they_are_left_out(told: Service) -> None:
    body = {"inputs": ["a e", "o"]}
    [first, second] = told.http.post("/tokenize", json=body).json()
    assert [each["text"] for each in first] == ["[CLS]", "a", "e", "[SEP]"]
    assert {"id": 1, "text": "e", "special": False, "start": 2, "stop": 3} in first
    bare = told.http.post(f"{EMBED}/tokenize", json=body | {"add_special_tokens": False}).json()
    assert bare == [first[1:-1], second[1:-1]]


WRONG: dict[str, tuple[str, Any, int, str, str]] = {
    "another kind": (f"{RANK}/embed", {"inputs": "a"}, 424, "Backend", "is a model for text-ranking, not for"),
    "another kind named": ("/embed?model=text-ranking", {"inputs": "a"}, 424, "Backend", "text-ranking, not for"),
    "a kind without a route": ("/tei/question-answering", {"inputs": "a"}, 424, "Backend", "which has no route here"),
    "unknown": ("/tei/no-such/embed", {"inputs": "a"}, 404, "Validation", "no model 'no-such'"),
    "unknown and alone": ("/tei/no-such", {"inputs": "a"}, 404, "Validation", "no model 'no-such'"),
    "too long": ("/embed", {"inputs": ["a", TOO_LONG]}, 413, "Validation", "input 1: the text has 9 tokens"),
    "too many": ("/embed", {"inputs": ["a"] * 10_001}, 413, "Validation", "at most 10,000 entries"),
    "too many with many vectors": ("/embed_all", {"inputs": ["a"] * 33}, 413, "Validation", "at most 32"),
    "token ids": ("/embed", {"inputs": [1, 2]}, 422, "Validation", "send texts"),
    "no ids": ("/decode", {"ids": []}, 422, "Validation", "at least 1"),
    "the beginning cut": ("/embed", {"inputs": "a", "truncation_direction": "Left"}, 422, "Validation", "Right"),
    "cut and read": ("/embed", {"inputs": "a", "truncate": True, "long": "mean"}, 422, "Validation", "one of them"),
    "nothing": (EMBED, {}, 422, "Validation", "inputs: "),
    "no object": (EMBED, [1], 422, "Validation", "JSON object"),
    "three of a pair": ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "Validation", "inputs"),
    "no texts": ("/rerank", {"query": "a", "texts": []}, 422, "Validation", "at least 1 entry"),
}


@pytest.mark.parametrize(("path", "body", "status", "kind", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_its_form(
    told: Service, path: str, body: Any, status: int, kind: str, said: str
) -> None:
    response = told.http.post(path, json=body)
    assert (response.status_code, response.json()["error_type"]) == (status, kind), response.text
    assert said in response.json()["error"]


def test_information_is_of_the_model_in_the_address(told: Service) -> None:
    found = told.http.get(f"{EMBED}/info").json()
    assert (found["model_id"], found["model_sha"]) == ("feature-extraction", "feature-extraction@0")
    assert (found["model_type"].keys(), found["auto_truncate"]) == ({"embedding"}, False)
    assert told.http.get("/info", params={"model": "text-classification"}).json()["model_type"].keys() == {"classifier"}
    for path, status in (("/info", 424), ("/tei/no-such/info", 404), ("/tei/no-such/health", 404)):
        refused = told.http.get(path)
        assert (refused.status_code, refused.json()["error_type"]) == (
            status,
            "Backend" if status == 424 else "Validation",
        )


def test_root_is_the_address_of_the_only_model_that_has_routes(service: Service, raw: redis.Redis) -> None:
    with telling(service.bench, ("question-answering", "feature-extraction")):
        raw.hdel(keys.ALIASES, "feature-extraction")
        for home in ("", EMBED):
            assert service.http.get(f"{home}/info").json()["model_id"] == "feature-extraction"
            assert service.http.get(f"{home}/health").status_code == 200
            [vector] = service.http.post(home or "/", json={"inputs": "a"}).json()
            assert len(vector) == 3
    with telling(service.bench, default="text-ranking"):
        assert service.http.post("/", json={"query": "a", "texts": ["a"]}).json() == [{"index": 0, "score": 1.0}]


def test_health_says_why_nothing_is_answered(api: TestClient) -> None:
    unready = api.get("/health")
    assert (unready.status_code, unready.json()["error_type"]) == (503, "Unhealthy")
    assert "no living core holds the default model" in unready.json()["error"]


def test_health_alone_needs_no_key(guarded: Service) -> None:
    del guarded.http.headers["X-API-Key"]
    with telling(guarded.bench):
        assert guarded.http.get("/health").json()["status"] == "ok"
        asked = [guarded.http.post(path, json={"inputs": "a"}) for path in ("/", "/embed", EMBED, f"{EMBED}/embed")]
        for refused in (*asked, *(guarded.http.get(path) for path in ("/info", f"{EMBED}/health"))):
            assert (refused.status_code, refused.json()["error_type"]) == (401, "Validation")
