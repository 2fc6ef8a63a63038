"""Names under which layers and routes share facts about a request, and the security headers of responses."""

from collections.abc import Mapping
from contextvars import ContextVar

from corelane.domain.request_facts import NO_REQUEST, RequestFacts

#: What is known of the request that an asyncio task serves; each request has its own task.
REQUEST_FACTS: ContextVar[RequestFacts] = ContextVar("request_facts", default=NO_REQUEST)

REQUEST_ID = "X-Request-ID"

#: The key of the caller in the ASGI scope, and that of the traceparent which continues the request's trace, if any.
CALLER, TRACEPARENT = "corelane.caller", "corelane.traceparent"

#: Probes use any address of a machine. They are so frequent that "not ready" is logged by their callers, not here.
PROBES = ("/livez", "/readyz")

#: The content type of bodies with one JSON value a line.
NDJSON = "application/x-ndjson"

#: The content types under which such bodies are sent; none is registered, so clients have many names for it.
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
