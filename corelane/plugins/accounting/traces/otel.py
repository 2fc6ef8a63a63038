"""The tracer on OpenTelemetry's SDK, which exports by OTLP over HTTP in its own thread.

The SDK reads its own environment variables: OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SERVICE_NAME,
OTEL_RESOURCE_ATTRIBUTES. While the collector cannot be reached, spans are dropped, and the log says so once a minute.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

from corelane import __version__
from corelane.log import TELL_AGAIN_S
from corelane.tracing import Attributes, Kind

#: Longest time that a process waits for the collector at its end, in seconds.
FLUSH_S = 2.0

#: The loggers that report that spans were dropped, or that the collector cannot be reached.
EXPORT_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)


class SampledByLinks(Sampler):
    """Keeps a span that is linked to a kept trace, as one batch serves many jobs. Another sampler decides the rest."""

    def __init__(self, other: Sampler) -> None:
        self._other = other

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        """Decide about one span."""
        if any(link.context.trace_flags.sampled for link in links or ()):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return self._other.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """Name this sampler, and the one that decides the rest."""
        return f"SampledByLinks({self._other.get_description()})"


class SparseLines(logging.Filter):
    """Lets one line a minute through."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  # the signature is the library's
        """Return whether a line is written."""
        if time.monotonic() - self._told_s < TELL_AGAIN_S:
            return False
        self._told_s = time.monotonic()
        return True


class LiveSpan:
    """A span in progress."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """Return the traceparent for the next step."""
        return write_context(self._span.get_span_context())

    def rename(self, name: str) -> None:
        """Set the name, if it was not known when the span began."""
        self._span.update_name(name)

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """End the span; later calls do nothing. ``error`` is the kind of error, if there was one."""
        self._span.set_attributes(given(attributes))
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class OtelTracer:
    """The tracer of one process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("corelane", __version__)

    def begin(self, name: str, kind: Kind, parent: str, attributes: Attributes) -> LiveSpan:
        """Begin a span now; without a parent it begins a trace."""
        return LiveSpan(
            self._tracer.start_span(name, read_parent(parent), SpanKind[kind.upper()], attributes=given(attributes))
        )

    def write(
        self,
        name: str,
        kind: Kind,
        parent: str,
        attributes: Attributes,
        *,
        times_ns: tuple[int, int],
        links: Sequence[str] = (),
    ) -> str:
        """Write a span between two times since the epoch, with links to other traces; return its traceparent."""
        span = self._tracer.start_span(
            name,
            read_parent(parent),
            SpanKind[kind.upper()],
            attributes=given(attributes),
            links=[Link(read_context(link)) for link in links],
            start_time=times_ns[0],
        )
        span.end(times_ns[1])
        return write_context(span.get_span_context())

    def flush(self) -> None:
        """Send the remaining spans before the process ends. Returns after ``FLUSH_S`` at most."""
        # The SDK's own flush takes no time limit (1.45, open-telemetry/opentelemetry-python#4568).
        flushing = threading.Thread(target=self._provider.force_flush, name="traces", daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)


def make_tracer(role: str, instance: str, processor: SpanProcessor | None = None) -> OtelTracer:
    """Make the tracer of a process. If given, ``processor`` gets the spans instead of the exporter."""
    ours = {
        "service.name": f"corelane-{role}",
        "service.namespace": "corelane",
        "service.version": __version__,
        "service.instance.id": instance,
    }
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    # The end of Python must not wait for the collector. A caller that needs the spans sent calls ``flush``.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.sampler = SampledByLinks(provider.sampler)
    if processor is None:
        sparse = SparseLines()
        for name in EXPORT_LOGGERS:
            logging.getLogger(name).addFilter(sparse)
        processor = BatchSpanProcessor(OTLPSpanExporter())
    provider.add_span_processor(processor)
    return OtelTracer(provider)


def given(attributes: Attributes) -> dict[str, str | int | float | bool]:
    """Return the attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def read_context(traceparent: str) -> SpanContext:
    """Read a well-formed traceparent."""
    trace, span, flags = traceparent[3:35], traceparent[36:52], traceparent[53:55]
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def read_parent(traceparent: str) -> Context:
    """Return the context of a traceparent, for a child span; an empty one begins a trace."""
    if not traceparent:
        return Context()
    return set_span_in_context(NonRecordingSpan(read_context(traceparent)), Context())


def write_context(context: SpanContext) -> str:
    """Return the traceparent of a span."""
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
