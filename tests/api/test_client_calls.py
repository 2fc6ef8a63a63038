"""The client against the OpenAPI document: every call it makes is one the service documents, and none is left out."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest

from corelane.client import AsyncClient, Client, admin, endpoints
from corelane.client.endpoints import Call
from corelane.tasks.question_answering import client
from corelane.tasks.registry import DIALECTS

#: What stands for each argument of a call.
ARGUMENTS: dict[str, Any] = {
    "after": "1",
    "alias": "default",
    "batch_id": "batch_1",
    "before": 1,
    "body": b"{}",
    "call": endpoints.submit(b"{}", "k", 5.0),
    "code": "worker_lost",
    "completion_window": "24h",
    "content": [b"{}"],
    "core": "host/0",
    "delivery_id": "evt_1",
    "file_id": "file_1",
    "filters": {
        "status": ["queued", "running"],
        "model": "m",
        "created_after": datetime(2026, 1, 1, tzinfo=UTC),
        "created_before": "2026-01-01T00:00:00Z",
    },
    "first": "2026-11-01",
    "last": "2026-11-30",
    "group_by": ["day", "key"],
    "owner": "*",
    "expires_in_s": 60,
    "force": True,
    "input_file_id": "file_1",
    "items": [],
    "job_id": "job_1",
    "head": {"model": "m"},
    "idempotency_key": "k",
    "key": "k",
    "kind": "owner",
    "limit": 1,
    "manifest_sha256": "0" * 64,
    "metadata": {"a": "b"},
    "model": "m",
    "name": "mine",
    "overlap_s": 60,
    "parts": {"model": "m"},
    "path": Path("questions.jsonl"),
    "purpose": "batch",
    "rotate": False,
    "secret_id": "whs_1",
    "text": "Ada wrote it.",
    "version": "m@1",
    "wait_s": 5.0,
    "weights": {"m@1": 1.0},
}

#: Operations that a client has no use for.
NOT_CALLED = {
    *(("get", "/v1/deliveries"), ("get", "/v1/deliveries/{delivery_id}"), ("get", "/v1/history")),
    ("post", "/v1/webhook-secrets/rotate"),  # that of the first secret, with `rotate`
    *(("get", "/livez"), ("get", "/v1/tasks"), ("get", "/info"), ("get", "/health")),
    ("get", "/v1/batches/{batch_id}/output"),
    *(("post", path) for path in DIALECTS),
}


def made_calls() -> Iterator[tuple[str, Call[Any]]]:
    for module in (admin, client, endpoints):
        for name, make in inspect.getmembers(module, inspect.isfunction):
            if make.__module__ == module.__name__ and get_origin(get_type_hints(make)["return"]) is Call:
                yield name, make(**{argument: ARGUMENTS[argument] for argument in inspect.signature(make).parameters})


def test_every_call_is_documented(document: dict[str, Any]) -> None:
    for name, call in made_calls():
        operation = document["paths"][call.route][call.method.lower()]
        known: dict[str, set[str]] = {"path": set(), "query": set(), "header": {"content-type", "accept"}}
        for parameter in operation.get("parameters", []):
            known[parameter["in"]].add(parameter["name"].lower())
        assert set(call.path) == known["path"], name
        assert {parameter.lower() for parameter in call.params} <= known["query"], name
        assert {header.lower() for header in call.headers} <= known["header"], name
        assert (call.content is not None) == ("requestBody" in operation), name
        if call.content is not None:
            assert call.headers["Content-Type"].split(";")[0] in operation["requestBody"]["content"], name
        assert "{" not in call.url


def test_every_operation_has_a_call(document: dict[str, Any]) -> None:
    called = {(call.method.lower(), call.route) for _, call in made_calls()}
    documented = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert documented - called == NOT_CALLED


def test_both_clients_have_the_same_methods_and_arguments() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(of, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_methods_show_their_arguments_and_a_docstring(client: type) -> None:
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            assert next(iter(inspect.signature(method).parameters)) == "self", name
    assert str(inspect.signature(client.get)) == "(self, job_id: str, wait_s: float = 0.0)"  # type: ignore[attr-defined]
