"""Names under which the layers around a request and its route share facts, and the security headers of responses."""

from collections.abc import Mapping
from contextvars import ContextVar

from corelane.domain.request_context import NO_CONTEXT, RequestContext

#: The context of the request that is being served; each request is a task of its own.
REQUEST_CONTEXT: ContextVar[RequestContext] = ContextVar("request_context", default=NO_CONTEXT)

REQUEST_ID = "X-Request-ID"

#: The key of the caller in the ASGI scope, and the key of the traceparent of the request's own span, where it has one.
CALLER, TRACEPARENT = "corelane.caller", "corelane.traceparent"

#: Probes use whatever address a machine has, and ask so often that "not ready" is logged by those who wait for it.
PROBES = ("/livez", "/readyz")

#: One JSON value a line.
NDJSON = "application/x-ndjson"

#: For all responses but the page at /docs: browsers neither show, frame nor sniff them. HSTS is the TLS proxy's task.
STRICT: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

#: For the page at /docs: its own files and this service only. Swagger UI sets style attributes, and its style sheet
#: holds its icons.
PAGE: Mapping[str, str] = {
    **STRICT,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
