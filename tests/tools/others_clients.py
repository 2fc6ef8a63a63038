"""What the stock clients of other services must find, whichever model serves: only addresses and models differ."""

from typing import Any

import cohere
import httpx2
import numpy as np
import pytest
from huggingface_hub import InferenceClient, close_session
from huggingface_hub.errors import HfHubHTTPError
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from openai import NotFoundError, OpenAI, UnprocessableEntityError

TEXTS = ["The room was clean.", "Ada Lovelace was born in London.", "A parcel came late."]


def address(url: str, task: str, model: str) -> str:
    return f"{url}/v1/hf/{task}?model={model}"


def check_openai(url: str, model: str, dimensions: int) -> None:
    """Texts become vectors in both encodings, the same ones in the order of the texts; what is wrong is said."""
    with OpenAI(base_url=f"{url}/v1", api_key="somebody", max_retries=0) as client:
        made = client.embeddings.create(model=model, input=[*TEXTS, TEXTS[0]])
        plain = client.embeddings.create(model=model, input=[*TEXTS, TEXTS[0]], encoding_format="float")
        short = client.embeddings.create(model=model, input=TEXTS[0], dimensions=dimensions)
        assert [each.index for each in made.data] == [0, 1, 2, 3]
        assert made.data[0].embedding == made.data[3].embedding != made.data[1].embedding
        for packed, floats in zip(made.data, plain.data, strict=True):
            assert np.allclose(packed.embedding, floats.embedding, atol=1e-6)
        assert len(short.data[0].embedding) == dimensions
        assert made.usage.prompt_tokens == made.usage.total_tokens > 4
        assert made.model.startswith(model)
        for wrong, said in (
            ([[1, 2], [3]], "check_embedding_ctx_length=False"),
            ([5, 6], "check_embedding_ctx_length=False"),
            ([""], "at least 1 character"),
        ):
            with pytest.raises(UnprocessableEntityError, match=said) as caught:
                client.embeddings.create(model=model, input=wrong)
            assert (caught.value.type, caught.value.param) == ("invalid_request_error", caught.value.param)
        with pytest.raises(NotFoundError) as unknown:
            client.embeddings.create(model="no-such", input="a")
        assert unknown.value.code == "model_not_found"


def check_hugging_face(url: str, models: dict[str, str]) -> dict[str, Any]:
    """Each method of the client reads what its task's model gives; return what was found, by task."""
    found: dict[str, Any] = {}

    def client(task: str, of: str = "") -> InferenceClient:
        return InferenceClient(address(url, task, models[of or task]))

    found["text-classification"] = client("text-classification").text_classification(TEXTS[0], top_k=2)
    found["zero-shot-classification"] = client("zero-shot-classification").zero_shot_classification(
        TEXTS[2], ["delivery", "price"], multi_label=True
    )
    found["token-classification"] = client("token-classification").token_classification(TEXTS[1])
    found["feature-extraction"] = client("feature-extraction").feature_extraction(TEXTS, normalize=True)
    found["sentence-similarity"] = client("sentence-similarity", "feature-extraction").sentence_similarity(
        TEXTS[0], other_sentences=[TEXTS[0], TEXTS[1]]
    )
    scores = [each.score for each in found["text-classification"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    assert {each.label for each in found["zero-shot-classification"]} == {"delivery", "price"}
    for each in found["token-classification"]:
        assert TEXTS[1][each.start : each.end] == each.word
        assert each.entity_group
    vectors = found["feature-extraction"]
    assert vectors.dtype == np.float32
    assert len(vectors) == 3
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    same, other = found["sentence-similarity"]
    assert same == pytest.approx(1, abs=1e-5) != other
    uncut = client("feature-extraction").feature_extraction(TEXTS, truncate=True, normalize=True)
    assert np.allclose(uncut, vectors, atol=1e-5)
    with pytest.raises(HfHubHTTPError, match="there is no model 'no-such'"):
        InferenceClient(address(url, "feature-extraction", "no-such")).feature_extraction("a")
    close_session()
    return found


def check_cohere(url: str, model: str) -> None:
    """Both versions of the client read a ranking."""
    documents = ["It opened in 1889.", "The tower is tall."]
    with cohere.Client("somebody", base_url=url) as client:
        mixed = [documents[0], {"text": documents[1]}]
        first = client.rerank(model=model, query="The tower is tall?", documents=mixed, return_documents=True)
    assert sorted(each.index for each in first.results) == [0, 1]
    assert [each.document.text for each in first.results if each.document] == [
        documents[each.index] for each in first.results
    ]
    with cohere.ClientV2("somebody", base_url=url) as later:
        with pytest.raises(cohere.NotFoundError, match="no model 'no-such'"):
            later.rerank(model="no-such", query="a", documents=["b"])
        second = later.rerank(
            model=model, query="The tower is tall?", documents=documents, top_n=1, max_tokens_per_doc=None
        )
    [best] = second.results
    assert best.index == first.results[0].index
    assert 0 <= best.relevance_score <= 1
    scores = [each.relevance_score for each in first.results]
    assert scores == sorted(scores, reverse=True)


def check_tei(url: str, models: dict[str, str]) -> Any:
    """Clients that have an address of Text Embeddings Inference read what models give; return the texts' vectors."""
    embeds, ranks = f"{url}/tei/{models['feature-extraction']}", f"{url}/tei/{models['text-ranking']}"
    vectors = InferenceClient(base_url=embeds).feature_extraction(TEXTS, truncate=True, truncation_direction="right")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    chain = HuggingFaceEndpointEmbeddings(model=f"{embeds}/embed")
    assert np.allclose(chain.embed_documents(TEXTS), vectors, atol=1e-6)
    assert np.allclose(chain.embed_query(TEXTS[1]), vectors[1], atol=1e-6)
    cosines = InferenceClient(f"{embeds}/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    assert np.allclose(cosines, vectors @ vectors[0], atol=1e-5)
    with OpenAI(base_url=f"{embeds}/v1", api_key="somebody", max_retries=0) as client:
        found = np.array(client.embeddings.create(model="tei", input=TEXTS[0]).data[0].embedding)
        assert np.allclose(found / np.linalg.norm(found), vectors[0], atol=1e-5)
    labels = InferenceClient(f"{url}/tei/{models['text-classification']}")
    assert 0 < labels.text_classification(TEXTS[0], top_k=1).score <= 1
    with httpx2.Client() as http:
        each, other = http.post(f"{embeds}/embed_all", json={"inputs": TEXTS[:2]}).json()
        means = np.array([np.mean(each, axis=0), np.mean(other, axis=0)])
        assert np.allclose(means / np.linalg.norm(means, axis=1, keepdims=True), vectors[:2], atol=1e-5)
        tokens = http.post(f"{embeds}/tokenize", json={"inputs": "Ada wrote it."}).json()
        ids = {"ids": [each["id"] for each in tokens[0]]}
        [decoded] = http.post(f"{embeds}/decode", json=ids).json()
        whole = http.post(f"{embeds}/decode", json=ids | {"skip_special_tokens": False}).json()
        assert whole == [f"[CLS] {decoded} [SEP]"]
        found = http.post(f"{ranks}/rerank", json={"query": "a", "texts": TEXTS, "return_text": True}).json()
        assert [each["text"] for each in found] == [TEXTS[each["index"]] for each in found]
        assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)
        assert http.get(f"{ranks}/info").json()["model_type"].keys() == {"reranker"}
        assert http.get(f"{ranks}/health").status_code == 200
    with pytest.raises(HfHubHTTPError, match="424"):
        InferenceClient(f"{ranks}/embed").feature_extraction("a")
    return vectors
