"""Each task through both clients and the command line, against a real service whose engine is null."""

import base64
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from corelane.client import Client
from corelane.client.bulk import run_all
from corelane.domain.jobs import DEFAULT_TASK, Result
from corelane.errors import ServiceError
from corelane.tasks.feature_extraction.client import vector_of
from corelane.tasks.registry import TASKS
from tests.corelane.both_clients import Awaited


@pytest.fixture(params=[Client, Awaited])
def client(null_service: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Either client."""
    with request.param(null_service) as client:
        yield client


def ask_each(client: Client) -> dict[str, Any]:
    return {
        "text-classification": client.classify("Nice.", model="text-classification@1", top_k=1),
        "zero-shot-classification": client.zero_shot("Nice.", ["good", "bad"], model="zero-shot-classification@1"),
        "token-classification": client.entities("Ada.", model="token-classification@1", aggregation="first"),
        "text-ranking": client.rerank("Ada?", ["Ada.", "Bob."], model="text-ranking@1", top_n=1),
    }


def test_each_task_has_a_method_with_its_own_result(client: Client) -> None:
    for name, result in ask_each(client).items():
        assert type(result) is TASKS[name].result
        assert result.status == "succeeded"


def test_several_texts_give_as_many_results_in_order(client: Client) -> None:
    texts = [f"text {n}" for n in range(1200)]
    labels = client.classify(texts, model="text-classification@1")
    assert [result.index for result in labels] == list(range(1200))
    pairs = client.classify([("a", "b"), "c"], model="text-classification@1")
    assert [result.labels for result in pairs] == [[], []]
    assert client.entities([], model="token-classification@1") == []


def test_a_text_without_a_vector_is_an_error(client: Client) -> None:
    # The null engine gives none.
    with pytest.raises(ServiceError, match="text 0: succeeded"):
        client.embed(["Ada."], model="feature-extraction@1", dimensions=8)


@pytest.mark.parametrize("name", TASKS)
def test_any_model_is_asked_by_its_name(client: Client, name: str) -> None:
    model = "null@0" if name == DEFAULT_TASK else f"{name}@1"
    assert client.get_model(model)["task"] == name
    assert type(client.predict(model, TASKS[name].example)) is TASKS[name].result
    given = [{"id": str(n), **TASKS[name].example} for n in range(3)]
    assert [result.id for result in client.predict(model, given)] == ["0", "1", "2"]


def test_items_of_another_task_are_refused(client: Client) -> None:
    with pytest.raises(ServiceError) as caught:
        client.classify("Nice.", model="text-ranking@1")
    assert caught.value.status == 422


@pytest.mark.parametrize("name", TASKS)
def test_any_number_of_items_of_any_task(null_service: str, name: str) -> None:
    model = "null@0" if name == DEFAULT_TASK else f"{name}@1"
    with Client(null_service) as client:
        found: list[Result] = list(
            run_all(client, [{"id": str(n), **TASKS[name].example} for n in range(1500)], model=model)
        )
    assert [(result.index, result.id) for result in found] == [(n, str(n)) for n in range(1500)]
    assert isinstance(found[0], TASKS[name].result)


@pytest.mark.parametrize("sent", [[0.5, -2.0], base64.b64encode(struct.pack("<2f", 0.5, -2.0)).decode()])
def test_a_vector_is_numbers_in_either_encoding(sent: Any) -> None:
    result = Result.model_validate({"index": 0, "status": "succeeded", "embedding": sent, "tokens": 3})
    assert vector_of(result) == [0.5, -2.0]
