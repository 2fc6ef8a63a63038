"""The trace of a job, from its request to its webhook, in this process: the app without its socket, the drain of a core
with the tiny model, the keeper's sweep, a round of the webhook sender. Spans are kept in memory.
"""

import base64
from collections.abc import Iterator
from ipaddress import ip_network
from unittest import mock

import pytest
import redis
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id
from pydantic import SecretStr

from api.app import create_app
from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import Core
from corelane.log import Outage, get_logger
from corelane.plugins.accounting.traces import core as core_traces
from corelane.plugins.accounting.traces.otel import OtelTracer, make_tracer
from corelane.settings import Settings
from corelane.store.upkeep import Upkeep
from tests.tools.receivers import receiver
from tests.tools.redis import admin_url
from tests.tools.waiting import eventually
from workers.core.drain import drain
from workers.core.process import CoreProcess
from workers.loops import rounds
from workers.roles import sending

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class World:
    """A service in one process, and the spans that it has written."""

    def __init__(self, settings: Settings, bell: str) -> None:
        self.settings, self.bell = settings, bell
        self.kept = InMemorySpanExporter()
        self.upkeep = Upkeep(settings, bell)
        self.tracer: OtelTracer = make_tracer("test", "one", SimpleSpanProcessor(self.kept))
        observers = [lambda core: [core_traces.CoreTraces(self.tracer, core)]]
        self.core = CoreProcess(settings, Core("test", 0), bell, observers=observers)
        self.api = TestClient(create_app(settings, self.tracer))

    def start(self) -> None:
        self.core.start(lambda: False)
        eventually(self.serves)

    def serves(self) -> bool:
        self.drain()
        return bool(self.core.versions)

    def drain(self) -> None:
        drain(self.core, lambda: False)

    def submit(self, *questions: str, **more: object) -> str:
        items = [{"question": each, "context": "Ada Lovelace wrote the notes in 1843."} for each in questions]
        headers = more.pop("headers", {})
        answer = self.api.post("/v1/jobs", json={"items": items, **more}, headers=headers)  # type: ignore[arg-type]
        answer.raise_for_status()
        return str(answer.json()["id"])

    def tell_ended(self) -> None:
        # A logger of its own: one that was used here cannot be captured by tests that come later.
        with mock.patch.object(rounds, "log", get_logger("sweep")):
            rounds.tell_ended(self.upkeep, self.tracer)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.kept.get_finished_spans()

    def of(self, job: str) -> dict[str, ReadableSpan]:
        """Return the spans in a job's trace by name."""
        [submit] = [span for span in self.named("submit") if span.attributes["corelane.job.id"] == job]  # type: ignore[index]
        return {span.name: span for span in self.spans if trace_of(span) == trace_of(submit)}

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_trace_id(span.context.trace_id)


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_span_id(span.context.span_id)


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else format_span_id(span.parent.span_id)


def facts_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan) -> set[str]:
    return {format_span_id(link.context.span_id) for link in span.links}


@pytest.fixture(scope="module")
def service(
    redis_url: str, tiny_artifact: Artifact, bell: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with redis.Redis.from_url(admin_url(redis_url)) as client:
        client.flushall()
    settings = Settings(
        redis_url=redis_url,
        data_dir=tmp_path_factory.mktemp("traces"),
        core_host="test",
        lease_s=60,
        artifacts_dir=next(each for each in tiny_artifact.path.parents if each.name == "artifacts"),
        model=tiny_artifact.manifest.name,
        linger_s=0,
        webhook_secret=SecretStr("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()),
        webhook_allowed_networks=(ip_network("127.0.0.0/8"),),
    )
    world = World(settings, bell)
    world.start()
    with world.api:
        yield world
    world.core.close()


@pytest.fixture
def world(service: World) -> World:
    """Return the service with nothing left to tell."""
    service.tell_ended()
    service.kept.clear()
    return service


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """Yield a client that leaves the service's data as they are."""
    with redis.Redis.from_url(admin_url(redis_url), decode_responses=True) as client:
        yield client


def test_one_trace_leads_from_the_request_to_the_webhook(world: World, raw: redis.Redis) -> None:
    with receiver() as hook:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        job = world.submit("Who wrote the notes?", webhook={"url": hook.url}, headers=headers)
        world.drain()
        world.tell_ended()
        sender = sending(world.settings, Outage(get_logger(__name__), "store"), world.tracer)
        sender.start()
        eventually(lambda: raw.hget("cl:posted", "delivered") == "1")
        sender.ask_to_stop()
        sender.join(60)
    spans = world.of(job)
    assert set(spans) == {"POST /v1/jobs", "submit", "batch", "commit", "queue", "job", "POST webhook"}
    assert {trace_of(span) for span in spans.values()} == {TRACE}
    request, submit = spans["POST /v1/jobs"], spans["submit"]
    assert parent_of(request) == PARENT
    assert parent_of(submit) == id_of(request)
    assert {parent_of(spans[name]) for name in ("batch", "commit", "queue", "job", "POST webhook")} == {id_of(submit)}
    facts = facts_of(request)
    assert (facts["http.request.method"], facts["http.route"], facts["http.response.status_code"]) == (
        *("POST", "/v1/jobs"),
        202,
    )
    batch = facts_of(spans["batch"])
    assert (batch["corelane.core"], batch["corelane.batch.rows"], batch["messaging.batch.message_count"]) == (
        *("test/0", 1),
        1,
    )
    assert facts_of(spans["job"])["corelane.job.status"] == "succeeded"
    assert spans["queue"].start_time == spans["job"].start_time
    assert (spans["queue"].end_time or 0) <= (spans["job"].end_time or 0)
    assert facts_of(spans["POST webhook"])["http.response.status_code"] == 204
    [post] = hook.posts
    assert post.headers["traceparent"] == f"00-{TRACE}-{id_of(spans['POST webhook'])}-01"


def test_batch_of_several_jobs_is_linked_to_each(world: World) -> None:
    jobs = [world.submit(f"Who wrote note {number}?") for number in range(3)]
    world.drain()
    [shared] = world.named("shared batch")
    assert parent_of(shared) == ""
    assert facts_of(shared)["corelane.batch.rows"] == 3
    traces = [world.of(job) for job in jobs]
    assert linked(shared) == {id_of(spans["submit"]) for spans in traces}
    assert len({trace_of(spans["batch"]) for spans in traces}) == 3
    for spans in traces:
        assert linked(spans["batch"]) == {id_of(shared)}
        assert facts_of(spans["batch"])["corelane.job.rows"] == 1
        assert spans["batch"].start_time == shared.start_time
        assert "commit" in spans


def test_trace_that_its_caller_does_not_keep_is_passed_on_and_not_written(world: World, raw: redis.Redis) -> None:
    job = world.submit("Who?", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    world.drain()
    world.tell_ended()
    assert world.spans == ()
    kept = str(raw.hget(f"cl:job:{{{job}}}", "traceparent"))
    assert (kept[:36], kept[-3:]) == (f"00-{TRACE}-", "-00")
    assert PARENT not in kept


def test_requests_that_only_look_begin_no_trace_and_refused_ones_say_why(world: World) -> None:
    world.api.get("/v1/models")
    assert world.named("GET /v1/models") == []
    world.api.get("/v1/models", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    (read,) = world.named("GET /v1/models")
    assert (read.name, parent_of(read)) == ("GET /v1/models", PARENT)
    world.api.post("/v1/jobs", json={"items": [{"question": "q", "context": "c"}], "model": "unheard-of"})
    [submit] = world.named("submit")
    assert facts_of(submit)["error.type"] == "unknown_model"
    [request] = world.named("POST /v1/jobs")
    assert facts_of(request)["http.response.status_code"] == 422
    assert request.status.is_unset


def test_one_core_writes_few_spans_of_a_large_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_traces, "MOST_WRITTEN", 2)
    world.submit(*(f"Who wrote note {number}?" for number in range(20)))
    world.drain()
    assert len(world.named("batch")) == 2
    assert len(world.named("commit")) <= 2


def test_without_a_tracer_a_job_keeps_no_trace(world: World, raw: redis.Redis) -> None:
    with TestClient(create_app(world.settings)) as api:
        body = {"items": [{"question": "q", "context": "c"}]}
        job = api.post("/v1/jobs", json=body).json()["id"]
    assert raw.hget(f"cl:job:{{{job}}}", "traceparent") is None
    assert world.spans == ()
