"""The parts of the OpenAPI document that all routes share: how to send a key, and the problems from the layers."""

from typing import Any

from fastapi import FastAPI

from api.errors import PROBLEM_TYPE

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
    "415": "Unsupported Media Type: the `Content-Type` is not one that the route takes.",
}


def describe_common_responses(app: FastAPI, *, requires_keys: bool) -> None:
    """Add the common responses to every versioned route in the app's document."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            add_common_responses(plain(), requires_keys=requires_keys)
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def add_common_responses(document: dict[str, Any], *, requires_keys: bool) -> None:
    """Add the problems and the ways to send a key to a document."""
    if requires_keys:
        document.setdefault("components", {})["securitySchemes"] = SCHEMES
    problem = {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in document["paths"].items():
        if not path.startswith(("/v1/", "/v2/")):
            continue
        for operation in operations.values():
            if requires_keys:
                operation["security"] = [{name: []} for name in SCHEMES]
            possible = ACCESS | (BODY if "requestBody" in operation else {})
            for each in operation["responses"].values():
                drop_text_schema(each.get("content", {}))
            for status, description in possible.items():
                operation["responses"].setdefault(status, {"description": description, **problem})


def drop_text_schema(content: dict[str, Any]) -> None:
    """Drop the schema of an event stream's text: it is described event by event (``itemSchema``)."""
    stream = content.get("text/event-stream", {})
    if "itemSchema" in stream:
        stream.pop("schema", None)
