"""Whether this process sends traces. OpenTelemetry's own variables say so; its SDK reads the others by itself."""

import os

#: Where traces go; the first one is for traces alone.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def wants_traces() -> bool:
    """Return whether the environment names an endpoint for traces and does not switch them off."""
    is_off = _read("OTEL_SDK_DISABLED") == "true" or _read("OTEL_TRACES_EXPORTER") == "none"
    return not is_off and any(map(_read, ENDPOINTS))


def _read(name: str) -> str:
    return os.environ.get(name, "").strip().lower()  # noqa: TID251  # these names are OpenTelemetry's
