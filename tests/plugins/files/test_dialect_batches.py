"""Batches of embeddings and rankings: each line's reply is that of its route, however many items it has."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from openai import OpenAI
from openai.types import Batch

from corelane.errors import NotReady
from corelane.tasks.registry import DIALECTS, TASKS
from tests.api.conftest import Service
from tests.plugins.files.batch_bench import BatchBench
from tests.tools.batches import create, lines_of
from tests.tools.told_core import TOO_LONG, telling
from tests.tools.waiting import eventually


@pytest.fixture
def told(service: Service) -> Iterator[Service]:
    with telling(service.bench):
        yield service


def lines(endpoint: str, *bodies: Any) -> bytes:
    made = [
        {"custom_id": f"c{number}", "method": "POST", "url": endpoint, "body": body}
        for number, body in enumerate(bodies)
    ]
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in made)


def is_done(bench: BatchBench, batch: str) -> bool:
    bench.steps()
    bench.feed()
    return bench.batch(batch).status in ("completed", "failed")


def run(service: Service, content: bytes, endpoint: str, model: str = "") -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a finished batch, and its lines in both files by their ids. With a ``model`` lines are in the request."""
    bench = BatchBench(service.bench.settings, service.bench.raw, service.bench.bell)
    with OpenAI(base_url=f"{service.url}/v1", api_key="ann", max_retries=0) as client:
        if model:
            requests = list(map(orjson.loads, content.splitlines()))
            del requests[0]["method"], requests[0]["url"]  # a line may leave them out
            given = {"requests": requests, "endpoint": endpoint, "model": model}
            batch = client.post("/batches", cast_to=Batch, body=given)
        else:
            batch = create(client, content, endpoint=endpoint)
        eventually(lambda: is_done(bench, batch.id), 60)
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


@pytest.mark.parametrize("endpoint", [path for path, dialect in DIALECTS.items() if dialect.line is not None])
def test_lines_inline_are_answered_as_those_of_a_file_and_may_leave_the_model_to_the_batch(
    told: Service, endpoint: str
) -> None:
    dialect = DIALECTS[endpoint]
    model = next((name for name, task in TASKS.items() if dialect in task.dialects), "question-answering")
    bodies = [dict(dialect.example), {**dialect.example, "model": "nobody"}, {"color": 1}]
    _, output, failed = run(told, lines(endpoint, *({"model": model} | body for body in bodies)), endpoint)
    done, same, same_failed = run(told, lines(endpoint, *bodies), endpoint, model)
    replies = [found["c0"]["response"]["body"] for found in (output, same)]
    assert replies[0] | {"id": None} == replies[1] | {"id": None}
    assert {name: each["error"] for name, each in same_failed.items()} == {n: e["error"] for n, e in failed.items()}
    assert [failed[name]["error"]["code"] for name in ("c1", "c2")] == ["unknown_model", "invalid_input"]
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 2)
    assert (done.usage.output_tokens, done.usage.total_tokens) == (0, done.usage.input_tokens)


def test_lines_for_any_task_are_read_by_the_task_of_their_model(told: Service) -> None:
    bodies = [
        {"model": "text-classification", "text": "aaj", "options": {"top_k": 1}},
        {"model": "zero-shot-classification@0", "text": "b", "labels": ["a", "b"]},
        {"model": "token-classification", "text": "Ada wrote", "id": "mine"},
        {"question": "Who?", "context": "Ada."},
        {"model": "handler", "anything": {"at": "all"}},
        {"model": "text-classification", "question": "Who?"},
        {"model": "text-classification", "text": "a", "options": {"top_k": 0}},
        {"question": "Who?", "context_id": "elsewhere"},
        {"model": "text-classification", "text": TOO_LONG},
    ]
    _, output, failed = run(told, lines("/v1/predict", *bodies), "/v1/predict", "question-answering")
    found = [output[f"c{number}"]["response"]["body"] for number in range(5)]
    assert [[each["label"] for each in one["labels"]] for one in found[:2]] == [["anger"], ["b", "a"]]
    assert (found[2]["id"], found[2]["entities"][0]["text"], "index" in found[2]) == ("mine", "Ada", False)
    said = ("this model takes items for text-classification", "options.top_k", "`contexts`", "9 tokens")
    assert [text in failed[f"c{number}"]["error"]["message"] for number, text in enumerate(said, 5)] == [True] * 4


def test_lines_wait_until_the_task_of_their_model_is_known(service: Service) -> None:
    bench = BatchBench(service.bench.settings, service.bench.raw, service.bench.bell)
    batch = bench.begin(lines("/v1/predict", {"text": "Ada wrote"}), endpoint="/v1/predict", model="default")
    with pytest.raises(NotReady):
        bench.steps()
    assert service.http.post("/v1/predict", json={"text": "a"}).status_code == 503
    assert (bench.batch(batch).status, bench.left_behind()) == ("validating", set())
    with telling(service.bench, ["token-classification"], "token-classification"):
        eventually(lambda: is_done(bench, batch))
        predicted = service.http.post("/v1/predict", json={"text": "Ada wrote"}).json()
    [line] = bench.lines(bench.batch(batch).output_file_id)
    assert (line["response"]["body"], predicted["entities"][0]["text"]) == (predicted, "Ada")
