"""Names under which layers and routes share facts about a request, and the security headers of responses."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from starlette.types import Scope

from corelane.domain.request_facts import NO_REQUEST, RequestFacts

#: What is known of the request that an asyncio task serves; each request has its own task.
REQUEST_FACTS: ContextVar[RequestFacts] = ContextVar("request_facts", default=NO_REQUEST)

REQUEST_ID = "X-Request-ID"

#: The key of the caller in the ASGI scope, and that of the traceparent which continues the request's trace, if any.
CALLER, TRACEPARENT = "corelane.caller", "corelane.traceparent"

#: Probes use any address of a machine. They are so frequent that "not ready" is logged by their callers, not here.
PROBES = ("/livez", "/readyz", "/health")

#: The content type of bodies with one JSON value a line.
NDJSON = "application/x-ndjson"

#: The content types under which bodies of lines are sent. None is registered, so clients use many names.
LINES = (
    *(NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonl"),
    *("application/jsonlines", "application/x-jsonlines", "application/json-lines"),
)

#: Headers for all responses except the page at /docs. They forbid browsers to load content for a response, to frame it
#: and to guess its type. HSTS is left to the TLS proxy.
STRICT: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

#: Headers for the page at /docs: it may load only files of this service, and call only this service. Swagger UI sets
#: style attributes, and its style sheet contains its icons.
PAGE: Mapping[str, str] = {
    **STRICT,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

#: The scope's key for a pair: the list of headers as sent, and the headers that ``read_headers`` made of it.
HEADERS = "corelane.headers"


def read_headers(scope: Scope) -> Mapping[str, str]:
    """Return a request's headers by lower-case name. If a header was sent twice, the first counts."""
    sent: list[tuple[bytes, bytes]] = scope["headers"]
    read: tuple[Any, dict[str, str]] | None = scope.get(HEADERS)
    if read is not None and read[0] is sent:
        return read[1]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(sent)}
    scope[HEADERS] = sent, headers
    return headers


def content_type(headers: Mapping[str, str]) -> str:
    """Return the content type of a request, without parameters; empty if it has none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(given: str) -> bool:
    """Return whether a content type is JSON."""
    return given == "application/json" or (given.startswith("application/") and given.endswith("+json"))


def has_body(headers: Mapping[str, str]) -> bool:
    """Return whether a request's headers say that it has a body."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
