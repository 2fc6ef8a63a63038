"""Traces: the steps of jobs, as core writes them. A plugin provides the tracer that sends them somewhere.

``open_tracer`` is the only entry. A process without a tracer holds None, which costs only a test. A step refers to its
parent by a W3C ``traceparent``, the text that requests bring and jobs keep. Nothing here fails or delays work.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from corelane.plugin import Plugin, installed

#: The role of a step in its trace, as in OpenTelemetry.
Kind = Literal["server", "client", "producer", "consumer", "internal"]

#: Facts of a step. Their names are from OpenTelemetry's conventions or begin with ``corelane.``; None is left out.
Attributes = Mapping[str, str | int | float | bool | None]


class Step(Protocol):
    """Work in progress."""

    @property
    def traceparent(self) -> str:
        """Return the traceparent for the next step."""
        ...

    def rename(self, name: str) -> None:
        """Set the name, if it was not known when the step began."""
        ...

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """End the step, once; ``error`` is the kind of error, if it failed."""
        ...


class Tracer(Protocol):
    """Begins steps, and writes those that are over. Thread-safe."""

    def begin(self, name: str, kind: Kind, parent: str, attributes: Attributes) -> Step:
        """Begin a step now; without a parent it begins a trace."""
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
        """Write a step between two times since the epoch, with links to other traces; return its traceparent."""
        ...

    def flush(self) -> None:
        """Send what is left, before the process ends. Return after at most a few seconds."""
        ...


class TracingPlugin(Plugin):
    """A plugin that sends traces somewhere."""

    def tracer(self, role: str, instance: str) -> Tracer | None:
        """Return the tracer of this process, None if there is none to send to (``open_tracer``)."""
        return None


def is_sampled(traceparent: str) -> bool:
    """Return whether the sender of a well-formed traceparent records its trace."""
    return bool(traceparent) and bool(int(traceparent[53:55], 16) & 1)


def open_tracer(role: str, instance: str) -> Tracer | None:
    """Return the tracer of this process from the plugin that provides one; None if none does.

    A process that forks calls it after the fork. ``role`` is the service's name in traces unless the environment names
    one; ``instance`` distinguishes processes with the same role.
    """
    tracers = (plugin.tracer(role, instance) for plugin in installed(TracingPlugin))
    return next((tracer for tracer in tracers if tracer is not None), None)
