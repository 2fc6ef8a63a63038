"""Traces: sent to an OpenTelemetry collector in the background, if the environment asks for them.

OpenTelemetry's own variables turn them on; its SDK reads the other variables. Only ``otel`` imports OpenTelemetry.
What the collector does not accept is dropped.
"""

import os

from corelane.errors.extras import install_command
from corelane.log import get_logger
from corelane.tracing import Tracer

log = get_logger(__name__)

#: The variables with the collector's address; the first one is for traces only.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def wants_traces() -> bool:
    """Return whether the environment names an endpoint for traces and does not switch them off."""
    is_off = _read("OTEL_SDK_DISABLED") == "true" or _read("OTEL_TRACES_EXPORTER") == "none"
    return not is_off and any(map(_read, ENDPOINTS))


def _read(name: str) -> str:
    return os.environ.get(name, "").strip().lower()  # noqa: TID251  # these names are OpenTelemetry's


def open_tracer(role: str, instance: str) -> Tracer | None:
    """Return the tracer of this process; None if none is asked for, or OpenTelemetry is not available."""
    if not wants_traces():
        return None
    try:
        from corelane.plugins.accounting.traces.otel import make_tracer

        return make_tracer(role, instance)
    except ImportError:
        log.warning("traces_are_off", reason=f"{ENDPOINTS[1]} is set, and this needs: {install_command('otel')}")
    except Exception:
        # A wrong OTEL_ variable must not stop a service.
        log.exception("traces_are_off")
    return None
