"""The OpenAPI document tells the truth about requests and problems."""

import re
from typing import Any

import pytest
from openapi_spec_validator import validate

from api.app import create_app
from api.request_facts import PROBES
from corelane.domain.events import EventType
from corelane.domain.jobs import DEFAULT_TASK, Result
from corelane.settings import Settings
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS


def test_every_route_with_a_body_says_that_it_may_be_unreadable(document: dict[str, Any]) -> None:
    silent = [
        (method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation and "400" not in operation["responses"]
    ]
    assert silent == []


def test_every_list_of_every_body_has_a_bound(document: dict[str, Any]) -> None:
    schemas, unbounded, seen = document["components"]["schemas"], [], set[str]()

    def walk(schema: Any, at: str) -> None:
        if not isinstance(schema, dict):
            return
        if (name := schema.get("$ref", "").rpartition("/")[2]) and name not in seen:
            seen.add(name)
            walk(schemas[name], name)
        kind, values = schema.get("type"), schema.get("additionalProperties")
        if (kind == "array" and "maxItems" not in schema) or (
            values and values is not True and kind == "object" and "maxProperties" not in schema
        ):
            unbounded.append(at)
        inside = {**schema.get("properties", {}), "*": values, "[]": schema.get("items")}
        for name, each in inside.items():
            walk(each, f"{at}.{name}")
        for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
            walk(each, at)

    for path, operations in document["paths"].items():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                walk(content.get("schema"), path)
                walk(content.get("schema", {}).get("contentSchema"), path)
    assert {"HfSimilarity", "EmbeddingsBody", "RerankBody", "Ranked", "LabelledText"} <= seen
    assert unbounded == []


def test_examples_are_valid_requests(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert len(body["examples"]) >= 2
    for example in body["examples"].values():
        task = TASKS[example["value"].get("model", DEFAULT_TASK)]
        forms(task).request.model_validate(example["value"])
    assert {example["value"].get("model", DEFAULT_TASK) for example in body["examples"].values()} == set(TASKS)


def test_jobs_lines_and_results_are_documented_by_task(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    named = set(re.findall(r"#/components/schemas/([\w.-]+)", str(document)))
    assert named <= set(schemas)
    for path, method in (("/v1/jobs", "post"), ("/v1/jobs/{job_id}", "put")):
        content = document["paths"][path][method]["requestBody"]["content"]
        assert len(content["application/json"]["schema"]["anyOf"]) == len(TASKS)
        line = content["application/x-ndjson"]["schema"]["contentSchema"]
        assert {"$ref": "#/components/schemas/ClassifiedText"} in line["anyOf"]
    results = [schemas[each["$ref"].rpartition("/")[2]] for each in schemas["Result"]["oneOf"]]
    assert {task.result.mark for task in TASKS.values()} == {
        next(name for name in schema["required"] if name in Result.forms) for schema in results
    }
    assert set(schemas["Job"]["discriminator"]["mapping"]) == set(TASKS)
    for task, name in schemas["Job"]["discriminator"]["mapping"].items():
        job = schemas[name.rpartition("/")[2]]
        assert (job["properties"]["task"]["const"], job["properties"]["object"]["const"]) == (task, "job")
        assert {"object", "task", "priority"} <= set(job["required"])
        assert f"schemas/{TASKS[task].result.__name__}'" in str(job["properties"]["results"])
    assert "#/components/schemas/Result" in str(schemas["ResultList"])


def test_stream_of_events_is_documented_event_by_event(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/jobs/{job_id}/events"]["get"]["responses"]
    assert {"200", "204", "404", "422", "503"} <= set(responses)
    event = responses["200"]["content"]["text/event-stream"]["schema"]["properties"]
    assert event["event"]["enum"] == [str(each) for each in EventType]
    kinds = event["data"]["contentSchema"]["anyOf"]
    assert [kind.get("title", kind.get("$ref")) for kind in kinds] == ["Progress", "#/components/schemas/Job"]
    named = set(re.findall(r"#/components/schemas/(\w+)", str(kinds)))
    assert named <= set(document["components"]["schemas"])


def test_every_route_says_what_the_gate_answers_and_how_to_send_a_key_where_one_is_asked_for(
    document: dict[str, Any],
) -> None:
    assert document["security"] == [{}, {"bearer": []}, {"header": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path not in PROBES:
                assert {"401", "403", "429"} <= set(operation["responses"]), path
            assert ("security" not in operation) == (path not in PROBES), path
    guarded = create_app(Settings(auth="required")).openapi()
    assert set(guarded["components"]["securitySchemes"]) == {"bearer", "header"}
    assert guarded["security"] == [{"bearer": []}, {"header": []}]


@pytest.mark.parametrize("auth", ["off", "required"])
def test_document_is_valid_and_no_field_with_a_default_is_taken_for_a_required_one(auth: str) -> None:
    document = create_app(Settings(auth=auth)).openapi()
    validate(document)
    assert document["servers"] == [{"url": "/"}]
    schemas = document["components"]["schemas"]
    fields = [each for schema in schemas.values() for each in schema.get("properties", {}).values()]
    assert [each for each in fields if "default" in each] == []
    assert "required" not in schemas["TextClassificationJobRequest"]
