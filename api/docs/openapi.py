"""What every route has in common in the OpenAPI document: how to send a key where keys are asked for, and the problems
of the gate.

Added to the finished document, so that no route can leave it out.
"""

from typing import Any

from fastapi import FastAPI

from api.errors import PROBLEM_TYPE

#: Either is enough; both say the same.
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, `clk_…`."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, without `Bearer`."},
}

#: What comes before any route is looked for.
GATE = {
    "401": "Unauthorized: no API key, or one that is not good (any more).",
    "403": "Forbidden: the API key has not the scope for this.",
    "429": "Too Many Requests: too many of them in a time, or more work waits than is allowed.",
}

#: What comes while a body is read.
BODY = {
    "408": "Request Timeout: the body stopped coming before its end.",
    "413": "Content Too Large: more bytes than the service takes.",
    "415": "Unsupported Media Type: `Content-Type` does not say that the body is what the route takes.",
}


def describe_gate(app: FastAPI, *, requires_keys: bool) -> None:
    """Have the app's document say so on every route below /v1."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            add_gate(plain(), requires_keys=requires_keys)
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def add_gate(document: dict[str, Any], *, requires_keys: bool) -> None:
    """Add it, in place."""
    if requires_keys:
        document.setdefault("components", {})["securitySchemes"] = SCHEMES
    problem = {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in document["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for operation in operations.values():
            if requires_keys:
                operation["security"] = [{name: []} for name in SCHEMES]
            possible = GATE | (BODY if "requestBody" in operation else {})
            for each in operation["responses"].values():
                drop_text_schema(each.get("content", {}))
            for status, description in possible.items():
                operation["responses"].setdefault(status, {"description": description, **problem})


def drop_text_schema(content: dict[str, Any]) -> None:
    """A stream of events is described event by event (``itemSchema``), not as one text beside that."""
    stream = content.get("text/event-stream", {})
    if "itemSchema" in stream:
        stream.pop("schema", None)
