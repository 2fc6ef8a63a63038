"""When a process traces: asked for by OpenTelemetry's own variables, with the extra installed; else never."""

import logging
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from corelane.plugins.accounting.traces.otel import OtelTracer, SparseLines, make_tracer
from corelane.tracing import is_sampled, open_tracer
from tests.conftest import free_port

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KEPT, NOT_KEPT = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def tracer_and_spans() -> tuple[OtelTracer, InMemorySpanExporter]:
    spans = InMemorySpanExporter()
    return make_tracer("core", "a/0", SimpleSpanProcessor(spans)), spans


def test_nothing_is_traced_and_no_exporter_imported_unless_an_endpoint_is_named() -> None:
    assert open_tracer("api", "one") is None
    program = (
        "import sys, api.app, workers.app, workers.core.drain, workers.webhooks; from corelane.tracing import *; "
        "assert open_tracer('api', 'one') is None; sys.exit('opentelemetry.exporter' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize("switch", [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_opentelemetrys_switches_turn_traces_off(monkeypatch: pytest.MonkeyPatch, switch: tuple[str, str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(*switch)
    assert open_tracer("api", "one") is None


def test_missing_extra_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces")
    monkeypatch.setitem(sys.modules, "corelane.plugins.accounting.traces.otel", None)
    with capture_logs() as lines:
        assert open_tracer("api", "one") is None
    [line] = lines
    assert (line["event"], line["log_level"]) == ("traces_are_off", "warning")
    assert "[otel]" in line["reason"]


def test_wrong_variable_turns_traces_off_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with capture_logs() as lines:
        assert open_tracer("api", "one") is None
    assert [line["event"] for line in lines] == ["traces_are_off"]


def test_collector_that_is_away_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    tracer = open_tracer("api", "one")
    assert tracer is not None
    for _ in range(100):
        tracer.begin("submit", "producer", "", {}).end({})
    tracer.flush()


def test_service_is_named_by_its_role_unless_the_environment_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def resource() -> dict[str, object]:
        tracer, spans = tracer_and_spans()
        tracer.begin("submit", "producer", "", {}).end({})
        return dict(spans.get_finished_spans()[0].resource.attributes)

    assert resource()["service.name"] == "corelane-core"
    assert resource()["service.instance.id"] == "a/0"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "answers")
    assert resource()["service.name"] == "answers"


def test_sampler_of_the_environment_decides_about_new_traces_and_links_about_shared_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracer, spans = tracer_and_spans()
    new = tracer.begin("submit", "producer", "", {})
    new.end({})
    assert not is_sampled(new.traceparent)
    assert is_sampled(tracer.write("batch", "consumer", KEPT, {}, times_ns=(1, 2)))
    assert not is_sampled(tracer.write("batch", "consumer", NOT_KEPT, {}, times_ns=(1, 2)))
    assert is_sampled(tracer.write("shared batch", "consumer", "", {}, times_ns=(1, 2), links=[NOT_KEPT, KEPT]))
    assert [span.name for span in spans.get_finished_spans()] == ["batch", "shared batch"]


def test_exporters_complaints_are_written_once_a_minute() -> None:
    sparse = SparseLines()
    record = logging.LogRecord("exporter", logging.WARNING, "", 0, "away", (), None)
    assert [sparse.filter(record) for _ in range(3)] == [True, False, False]


def test_empty_traceparent_is_not_sampled() -> None:
    assert [is_sampled(text) for text in ("", NOT_KEPT, KEPT)] == [False, False, True]
