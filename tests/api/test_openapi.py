"""The OpenAPI document tells the truth about requests and problems."""

from typing import Any

import pytest

from api.app import create_app
from corelane.jobs import JobRequest
from corelane.settings import Settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def test_every_route_is_there(document: dict[str, Any]) -> None:
    routes = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {
        ("post", "/v1/jobs"),
        ("get", "/v1/jobs/{job_id}"),
        ("get", "/v1/jobs/{job_id}/results"),
        ("delete", "/v1/jobs/{job_id}/results"),
        ("post", "/v1/jobs/{job_id}/cancel"),
        ("get", "/v1/jobs/{job_id}/deliveries"),
        ("get", "/v1/deliveries"),
        ("get", "/v1/deliveries/{delivery_id}"),
        ("post", "/v1/deliveries/{delivery_id}/redeliver"),
        ("get", "/v1/cores"),
        ("get", "/v1/models"),
        ("post", "/v1/cores/{core}/models"),
        ("delete", "/v1/cores/{core}/models/{version}"),
        ("get", "/v1/aliases"),
        ("put", "/v1/aliases/{alias}"),
        ("delete", "/v1/aliases/{alias}"),
        ("get", "/livez"),
        ("get", "/readyz"),
    }


def test_examples_are_valid_requests(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert len(body["examples"]) >= 2
    for example in body["examples"].values():
        JobRequest.model_validate(example["value"])


def test_failures_are_documented_as_problems(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/jobs"]["post"]["responses"]
    assert {"200", "202", "400", "413", "422", "503"} <= set(responses)
    content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-ndjson"}
    assert "application/problem+json" in responses["422"]["content"]
    assert "HTTPValidationError" not in str(document)


def test_what_is_posted_to_webhooks_is_documented(document: dict[str, Any]) -> None:
    body = document["webhooks"]["job"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/JobNotice"}
