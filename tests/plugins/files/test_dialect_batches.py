"""Batches of embeddings and rankings: each line's reply is that of its route, however many items it has."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from openai import OpenAI

from tests.api.conftest import Service
from tests.plugins.files.batch_bench import BatchBench
from tests.tools.batches import create, lines_of
from tests.tools.told_core import TOO_LONG, telling
from tests.tools.waiting import eventually


@pytest.fixture
def told(service: Service) -> Iterator[Service]:
    with telling(service.bench, ["feature-extraction", "text-ranking"]):
        yield service


def lines(endpoint: str, *bodies: Any) -> bytes:
    made = [
        {"custom_id": f"c{number}", "method": "POST", "url": endpoint, "body": body}
        for number, body in enumerate(bodies)
    ]
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in made)


def run(service: Service, content: bytes, endpoint: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a finished batch, and its lines in both files by their ids."""
    bench = BatchBench(service.bench.settings, service.bench.raw, service.bench.bell)
    with OpenAI(base_url=f"{service.url}/v1", api_key="ann", max_retries=0) as client:
        batch = create(client, content, endpoint=endpoint)

        def is_done() -> bool:
            bench.steps()
            bench.feed()
            return client.batches.retrieve(batch.id).status in ("completed", "failed")

        eventually(is_done, 60)
        done = client.batches.retrieve(batch.id)
        files = [done.output_file_id, done.error_file_id]
        output, failed = (
            {each["custom_id"]: each for each in lines_of(client, file)} if file else {} for file in files
        )
    return done, output, failed


def test_embeddings_of_a_line_are_one_reply_of_openais_form(told: Service) -> None:
    bodies = [
        {"model": "feature-extraction", "input": "a"},
        {"model": "feature-extraction", "input": ["e", "a", "o"]},
        {"input": ["a"], "encoding_format": "base64", "dimensions": 1},
        {"model": "feature-extraction", "input": ["a", TOO_LONG]},
        {"model": "text-ranking", "input": "a"},
        {"model": "feature-extraction", "input": [[1, 2]]},
    ]
    done, output, failed = run(told, lines("/v1/embeddings", *bodies), "/v1/embeddings")
    assert (done.request_counts.completed, done.request_counts.failed) == (3, 3)
    one, three, packed = (output[f"c{number}"]["response"]["body"] for number in range(3))
    assert [each["index"] for each in three["data"]] == [0, 1, 2]
    assert three["data"][1]["embedding"] == one["data"][0]["embedding"]
    assert (three["model"], three["usage"]) == ("feature-extraction@0", {"prompt_tokens": 9, "total_tokens": 9})
    assert packed["data"][0]["embedding"] == "AACAPw=="
    assert {name: each["error"]["code"] for name, each in failed.items()} == {
        "c3": "text_too_long",
        "c4": "wrong_task",
        "c5": "invalid_input",
    }
    assert "check_embedding_ctx_length=False" in failed["c5"]["error"]["message"]


def test_three_thousand_texts_keep_their_order(told: Service) -> None:
    bodies = [{"model": "feature-extraction", "input": "a" * (number % 40 + 1)} for number in range(3000)]
    done, output, _ = run(told, lines("/v1/embeddings", *bodies), "/v1/embeddings")
    assert (done.status, done.request_counts.completed) == ("completed", 3000)
    found = [output[f"c{number}"]["response"]["body"]["data"][0]["embedding"] for number in range(3000)]
    assert found[:40] * 75 == found
    assert len({tuple(each) for each in found}) == 40


def test_lines_are_ranked_too(told: Service) -> None:
    body = {"query": "a b", "documents": ["c", "a b"], "top_n": 1}
    done, output, _ = run(told, lines("/v1/rerank", body), "/v1/rerank")
    assert done.status == "completed"
    assert output["c0"]["response"]["body"]["results"] == [{"index": 1, "relevance_score": 1.0}]


def test_inputs_of_all_lines_are_bounded_together(told: Service) -> None:
    content = lines("/v1/embeddings", *({"input": ["a"] * 500} for _ in range(101)))
    done, _, _ = run(told, content, "/v1/embeddings")
    assert (done.status, done.errors.data[0].code) == ("failed", "too_many_inputs")
