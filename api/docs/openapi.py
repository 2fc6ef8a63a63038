"""The parts of the OpenAPI document that no single route has.

They are: how to send a key, the problems from the layers, and the forms of each task's jobs and results.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import orjson
from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.errors import PROBLEM_TYPE
from api.request_facts import PROBES
from corelane.domain.batches import BatchRequest
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS

#: The ways to send a key. A request needs only one.
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, `clk_…`."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, without `Bearer`."},
}

#: Problems that occur before a route is chosen.
ACCESS = {
    "401": "Unauthorized: no API key, or an invalid one.",
    "403": "Forbidden: the API key lacks the scope for this.",
    "429": "Too Many Requests: too many in a time, or more work waits than is allowed.",
}

#: Problems that occur while a body is read.
BODY = {
    "400": "Bad Request: the body cannot be read.",
    "408": "Request Timeout: the body stopped coming before its end.",
    "413": "Content Too Large: more bytes than the service takes.",
    "415": "Unsupported Media Type: the `Content-Type` or `Content-Encoding` is not one that the route takes.",
}


def describe_common_responses(app: FastAPI, *, requires_keys: bool) -> None:
    """Add the common responses to every versioned route in the app's document."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            add_common_responses(document, requires_keys=requires_keys)
            add_forms(document)
            describe_streams(document)
            tell_defaults(document)
            document["servers"] = [{"url": "/"}]
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def add_common_responses(document: dict[str, Any], *, requires_keys: bool) -> None:
    """Add the problems and the ways to send a key to a document."""
    document.setdefault("components", {})["securitySchemes"] = SCHEMES
    document["security"] = [*([] if requires_keys else [{}]), *({name: []} for name in SCHEMES)]
    problem = {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in document["paths"].items():
        if path in PROBES:
            for operation in operations.values():
                operation["security"] = []
            continue
        for operation in operations.values():
            possible = ACCESS | (BODY if "requestBody" in operation else {})
            for status, description in possible.items():
                operation["responses"].setdefault(status, {"description": description, **problem})


def add_forms(document: dict[str, Any]) -> None:
    """Add the forms of all tasks. A body may be valid for several tasks (`anyOf`), a result for one (`oneOf`)."""
    bodies = [forms(task).request for task in TASKS.values()]
    lines = [form for task in TASKS.values() for form in (task.item, forms(task).head)]
    results = [task.result for task in TASKS.values()]
    # A batch's body is read as a stream, so its route does not bring its form.
    wanted: list[Any] = [(form, "validation") for form in (*bodies, *lines, BatchRequest)]
    _, made = models_json_schema(
        list(dict.fromkeys([*wanted, *((form, "serialization") for form in results)])),
        ref_template="#/components/schemas/{model}",
    )
    schemas = document["components"]["schemas"]
    schemas |= {name: schema for name, schema in made["$defs"].items() if name not in schemas}
    for form in results:
        # The field by which a result is known to be of its task is always there.
        schema = schemas[form.__name__]
        schema["required"] = [*dict.fromkeys([*schema["required"], form.mark])]
        schema.pop("additionalProperties", None)
    jobs_by_task(schemas)
    schemas["Result"] = {"title": "Result", "description": "A result, by task.", "oneOf": references(results)}
    for path, method in (("/v1/jobs", "post"), ("/v1/jobs/{job_id}", "put")):
        content = document["paths"][path][method]["requestBody"]["content"]
        content["application/json"]["schema"] = {"title": "A job, by task", "anyOf": references(bodies)}
        content["application/x-ndjson"]["itemSchema"] = {"title": "A line, by task", "anyOf": references(lines)}


def references(models: Sequence[type[BaseModel]]) -> list[dict[str, str]]:
    """Return a reference to each model, once."""
    return [{"$ref": f"#/components/schemas/{name}"} for name in dict.fromkeys(each.__name__ for each in models)]


def jobs_by_task(schemas: dict[str, Any]) -> None:
    """Describe a job by one form for each task. The job's `task` determines the form of its results."""
    plain, forms_by_task = schemas["Job"], {}
    for task in TASKS.values():
        job = deepcopy(plain)
        job["title"] = "".join(part.title() for part in task.name.split("-")) + "Job"
        job["properties"]["task"] |= {"const": task.name}
        for kind in job["properties"]["results"]["anyOf"]:
            if kind.get("type") == "array":
                kind["items"] = references([task.result])[0]
        schemas[job["title"]] = job
        forms_by_task[task.name] = f"#/components/schemas/{job['title']}"
    schemas["Job"] = {
        "title": "Job",
        "description": plain["description"],
        "oneOf": [{"$ref": each} for each in forms_by_task.values()],
        "discriminator": {"propertyName": "task", "mapping": forms_by_task},
    }


def describe_streams(node: Any) -> None:
    """Describe streams as OpenAPI 3.1 can: lines as a text with one line's schema, events by one event's schema."""
    for name, each in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(each, dict) and "itemSchema" in each:
            part = each.pop("itemSchema")
            text = {"type": "string", "contentMediaType": name, "contentSchema": part}
            said = {"description": each.get("schema", {}).get("description", "One part each.")}
            each["schema"] = part if name == "text/event-stream" else said | text
        describe_streams(each)


def tell_defaults(document: dict[str, Any]) -> None:
    """Say which fields may be missing. Generated clients expect a field with a default to be always there.

    A request may leave out a field with a default, and a reply always has it. So `default` is replaced by `required` in
    schemas that only replies use, and by a sentence in all other schemas.
    """
    schemas = document["components"]["schemas"]
    operations = [each for path in document["paths"].values() for each in path.values()]
    sent = _named_in([[each.get("requestBody"), each.get("parameters")] for each in operations], schemas)
    for name, schema in schemas.items():
        for field, each in schema.get("properties", {}).items():
            if "default" not in each:
                continue
            default = each.pop("default")
            if name not in sent:
                schema["required"] = [*dict.fromkeys([*schema.get("required", ()), field])]
            elif default is not None:
                each["description"] = (
                    f"{each.get('description', '')} By default {orjson.dumps(default).decode()}.".strip()
                )


def _named_in(node: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of all schemas that a part of a document refers to, directly or through other schemas."""
    found, waiting = set[str](), [node]
    while waiting:
        names = set(re.findall(r"#/components/schemas/([\w.-]+)", str(waiting.pop()))) - found
        found |= names
        waiting += [schemas[name] for name in names]
    return found
