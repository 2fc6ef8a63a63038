"""Traces: the spans of jobs, as core writes them. A plugin gives the tracer that sends them somewhere.

``open_tracer`` is the one door. A process without a tracer holds None and pays a test of it. A span knows its parent by
a W3C ``traceparent``, the text that requests bring and jobs keep. Nothing here fails or holds up work.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from corelane.plugin import installed

#: The place of a span in its trace, as OpenTelemetry counts them.
Kind = Literal["server", "client", "producer", "consumer", "internal"]

#: Facts of a span, by the names of OpenTelemetry's conventions or beginning with ``corelane.``; None is left out.
Attributes = Mapping[str, str | int | float | bool | None]


class Span(Protocol):
    """Work in progress."""

    @property
    def traceparent(self) -> str:
        """Return what the next step takes for its parent."""
        ...

    def rename(self, name: str) -> None:
        """Give it the name that was not known when it began."""
        ...

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """End it, once; ``error`` is the kind of error that it ended with."""
        ...


class Tracer(Protocol):
    """Begins spans, and writes down those that are over. Thread-safe."""

    def begin(self, name: str, kind: Kind, parent: str, attributes: Attributes) -> Span:
        """Begin a span now; without a parent it begins a trace."""
        ...

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
        """Write down a span between two times since the epoch, with links to other traces; return its traceparent."""
        ...

    def flush(self) -> None:
        """Send what is left, before the process ends; return after a few seconds at most."""
        ...


def is_sampled(traceparent: str) -> bool:
    """Return whether the trace of a well-formed traceparent is kept by those who began it."""
    return bool(traceparent) and bool(int(traceparent[53:55], 16) & 1)


def open_tracer(role: str, instance: str) -> Tracer | None:
    """Return the tracer of this process from the plugin that gives one; None if none does.

    A process that forks calls it after the fork. ``role`` is the service's name in traces unless the environment names
    one; ``instance`` tells processes of one role apart.
    """
    tracers = (plugin.tracer(role, instance) for plugin in installed())
    return next((tracer for tracer in tracers if tracer is not None), None)
