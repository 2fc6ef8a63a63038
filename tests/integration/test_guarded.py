"""A service that asks for keys, at debug level, with a collector of traces: as an operator starts it, over real
sockets. No document is logged or traced, and a request's id and trace go with its job to the core that answers it. Each
key is charged for what its own jobs took, and the sum is what the core worked.
"""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
import redis
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pytest_httpserver import HTTPServer
from typer.testing import CliRunner

from corelane.artifacts.manifest import Artifact
from corelane.cli.app import make_cli
from corelane.client import Client
from corelane.errors import ServiceError
from tests.tools.fleet import Fleet, start_fleet
from tests.tools.receivers import Receiver, receiver
from tests.tools.waiting import eventually

#: Stands in every document, question and other text that is sent.
MARKER = "Quokkamarker"

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with receiver(lambda _: (200, {}, b"")) as collector:
        yield collector


@pytest.fixture(scope="module")
def guarded(tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory, collector: Receiver) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("guarded")
    settings = {
        "CORELANE_AUTH": "required",
        "CORELANE_LOG_LEVEL": "debug",
        "CORELANE_LOG_FORMAT": "json",
        "CORELANE_MODEL": "tiny-qa",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.removesuffix("/hook"),
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    fleet = start_fleet(folder, tiny_artifact.path.parents[2], "--cores", "1", "--no-flower", **settings)
    yield fleet
    fleet.end()


@pytest.fixture(scope="module")
def secret(guarded: Fleet) -> str:
    every = [part for scope in ("submit", "read", "admin") for part in ("--scope", scope)]
    return corelane("keys", "create", "--name", "tests", *every, CORELANE_REDIS_URL=guarded.redis_url()).strip()


def corelane(*arguments: str, **env: str) -> str:
    done = CliRunner().invoke(make_cli(), arguments, env=env, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def lines(fleet: Fleet) -> list[dict]:
    """Return the lines that the parts logged as JSON; each line comes after the name of its part."""
    found = []
    for line in fleet.log.read_text(errors="replace").splitlines():
        text = line[line.find("{") :]
        if text.startswith("{"):
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError:
                continue
    return found


def test_serve_says_how_to_make_the_first_key(guarded: Fleet) -> None:
    eventually(lambda: "the API requires a key (CORELANE_AUTH)" in guarded.log.read_text(errors="replace"), 30)
    command = f"corelane keys create --name NAME --data {guarded.data}"
    eventually(lambda: command in guarded.log.read_text(errors="replace"), 30)


def test_only_those_with_a_key_are_answered_and_others_jobs_are_hidden(guarded: Fleet, secret: str) -> None:
    with Client(guarded.url) as nobody, pytest.raises(ServiceError, match="needs an API key"):
        nobody.cores()
    assert "testhost/0" in corelane("cores", "--url", guarded.url, CORELANE_API_KEY=secret)
    with Client(guarded.url, secret) as client:
        job = client.submit([{"question": "Who wrote it?", "context": "Ada wrote it."}], wait_s=30)
        assert job.status == "succeeded"
        at = {"CORELANE_REDIS_URL": guarded.redis_url()}
        other = json.loads(corelane("keys", "create", "--name", "b", "--json", **at))
        with Client(guarded.url, other["key"]) as stranger, pytest.raises(ServiceError) as refused:
            stranger.get(job.id)
        assert refused.value.problem_code == "not_found"
        corelane("keys", "revoke", other["id"], **at)
        with Client(guarded.url, other["key"]) as revoked:
            eventually(lambda: status_of(revoked) == "unauthorized")


def status_of(client: Client) -> str:
    try:
        client.cores()
    except ServiceError as error:
        return error.problem_code
    return ""


def test_headers_that_are_too_many_are_refused_by_the_server(guarded: Fleet) -> None:
    assert guarded.api.get("/livez", headers={"X-Large": "x" * 200_000}).status_code in (400, 431)
    assert guarded.api.get("/livez").status_code == 200


def test_ids_of_a_request_stand_with_its_job_and_in_the_cores_log(guarded: Fleet, secret: str) -> None:
    headers = {
        "Authorization": f"Bearer {secret}",
        "X-Request-ID": "req-of-this-test",
        "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
        "Prefer": "wait=30",
    }
    items = [{"question": "Who?", "context": "Ada."}, {"question": "long " * 1500, "context": "Ada."}]
    job = guarded.api.post("/v1/jobs", headers=headers, json={"items": items}).json()
    assert job["counts"] == {"total": 2, "succeeded": 1, "failed": 1, "canceled": 0, "expired": 0}
    kept = hash_of(guarded, job["id"])
    assert kept["request_id"] == "req-of-this-test"
    assert kept["traceparent"].startswith(f"00-{TRACE}-")
    assert "00f067aa0ba902b7" not in kept["traceparent"]

    def told() -> set[str]:
        return {line["event"] for line in lines(guarded) if line.get("request_id") == "req-of-this-test"}

    eventually(lambda: {"job_submitted", "items_claimed", "items_failed", "job_ended"} <= told())
    [ended] = [line for line in lines(guarded) if line["event"] == "job_ended" and line["job_id"] == job["id"]]
    assert (ended["status"], ended["succeeded"], ended["failed"]) == ("succeeded", 1, 1)
    [failed] = [line for line in lines(guarded) if line["event"] == "items_failed" and line["job_id"] == job["id"]]
    assert (failed["code"], failed["items"], failed["trace_id"]) == ("question_too_long", 1, TRACE)


def test_trace_of_a_job_reaches_the_collector_from_every_process(
    guarded: Fleet, secret: str, collector: Receiver
) -> None:
    trace = "5cf92f3577b34da6a3ce929d0e0e4737"
    headers = {"Authorization": f"Bearer {secret}", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    with receiver() as hook:
        body = {"items": [{"question": "Who?", "context": "Ada."}], "webhook": {"url": hook.url}}
        guarded.api.post("/v1/jobs", headers=headers, json=body).raise_for_status()
        eventually(lambda: ("corelane-deliveries", "POST webhook") in spans_of(collector, trace))
    expected = {
        *(("corelane-api", "POST /v1/jobs"), ("corelane-api", "submit")),
        *(("corelane-core", "batch"), ("corelane-core", "commit")),
        *(("corelane-keeper", "queue"), ("corelane-keeper", "job")),
        ("corelane-deliveries", "POST webhook"),
    }
    eventually(lambda: spans_of(collector, trace) == expected)
    assert {post.path for post in collector.posts} == {"/v1/traces"}


def spans_of(collector: Receiver, trace: str) -> set[tuple[str, str]]:
    """Return the service and the name of each span of a trace that the collector has."""
    found = set()
    for post in list(collector.posts):
        for resource in ExportTraceServiceRequest.FromString(post.body).resource_spans:
            [service] = [each.value.string_value for each in resource.resource.attributes if each.key == "service.name"]
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            found |= {(service, span.name) for span in spans if span.trace_id.hex() == trace}
    return found


def hash_of(fleet: Fleet, job_id: str) -> dict[str, str]:
    with redis.Redis.from_url(fleet.redis_url(), decode_responses=True) as client:
        found: dict[str, str] = client.hgetall(f"cl:job:{{{job_id}}}")
    return found


def test_usage_of_fifty_mixed_jobs_of_two_keys_is_that_of_their_jobs(
    guarded: Fleet, secret: str, tmp_path: Path
) -> None:
    made = corelane("keys", "create", "--name", "ada", "--json", CORELANE_REDIS_URL=guarded.redis_url())
    with Client(guarded.url, secret) as tests, Client(guarded.url, json.loads(made)["key"]) as ada:
        before = {"tests": usage_of(tests), "ada": usage_of(ada)}
        for client in (tests, ada):
            jobs = submit_mixed(client)
            assert len(jobs) + 1 == 25
            file = tmp_path / "questions.jsonl"
            file.write_bytes(b"".join(orjson.dumps(batch_line(n)) + b"\n" for n in range(30)))
            batch = client.batch(file, completion_window="1h")
            assert batch.usage is not None
            # The core hears of the cancellation with its next batch, and what it did until then is the job's too.
            eventually(lambda: not is_at_work(guarded))
            found = [client.get(job) for job in [*jobs, *batch.jobs]]
            used = [job.usage for job in found if job.usage is not None]
            name = "ada" if client is ada else "tests"
            sums = subtract(usage_of(client), before[name])
            assert sums["core_s"] == pytest.approx(sum(usage.core_s for usage in used), rel=0.01)
            assert sums["items"] == sum(usage.items for usage in used)
            assert sums["tokens"] == sum(usage.tokens for usage in used)
            in_batch = [usage for job in batch.jobs if (usage := client.get(job).usage) is not None]
            assert batch.usage.total_tokens == sum(usage.tokens for usage in in_batch)

        used_s = tests.usage(owner="*").total.core_s

        def worked_s() -> float:
            """Return the core seconds by the core's own counter."""
            return sum(metric(guarded, secret, "corelane_core_seconds_total"))

        def stages_s() -> float:
            """Return the seconds of the three stages by the clock, which other processes make longer."""
            return sum(sum(metric(guarded, secret, f"corelane_{stage}_seconds_sum")) for stage in STAGES)

        eventually(lambda: worked_s() == pytest.approx(used_s, rel=0.01) and stages_s() > 0.99 * used_s)


def submit_mixed(client: Client) -> list[str]:
    """Submit 24 jobs of all kinds, wait for them, and return their ids."""
    item = {"question": "Who wrote it?", "context": "Ada wrote it in 1843."}
    document = {"question": "Who?", "context": "Ada wrote of the engine. " * 600}
    bad = {"question": "long " * 1500, "context": "Ada."}
    jobs = [client.submit([item]) for _ in range(12)]
    jobs += [client.submit([item] * count) for count in (2, 5, 9, 20, 40, 60)]
    jobs += [client.submit_lines(item for _ in range(count)) for count in (30, 50)]
    jobs += [client.submit([document]), client.submit([item, bad, item]), client.submit([bad])]
    canceled = client.submit([document] * 40)
    eventually(lambda: client.get(canceled.id).status != "queued")
    client.cancel(canceled.id)
    eventually(lambda: all(client.get(job.id).status.is_final for job in jobs))
    return [job.id for job in [*jobs, canceled]]


def batch_line(number: int) -> dict[str, object]:
    body = {"question": "Who wrote it?", "context": f"Ada wrote {number} pages."}
    return {"custom_id": f"q{number}", "method": "POST", "url": "/v1/answers", "body": body}


def usage_of(client: Client) -> dict[str, float]:
    """Return a caller's own usage."""
    total = client.usage().total
    return {"items": total.items, "tokens": total.tokens, "core_s": total.core_s}


def subtract(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}


#: The stages that count as a core's work.
STAGES = ("tokenize", "compute", "merge")


def is_at_work(fleet: Fleet) -> bool:
    """Tell whether the core holds any work."""
    with redis.Redis.from_url(fleet.redis_url()) as raw:
        return bool(raw.zcard("cl:leases"))


def metric(fleet: Fleet, secret: str, name: str) -> list[float]:
    text = fleet.api.get("/metrics", headers={"Authorization": f"Bearer {secret}"}).text
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]


def test_no_text_of_a_request_is_ever_logged_or_traced(guarded: Fleet, secret: str, collector: Receiver) -> None:
    document = guarded.api.get("/openapi.json").json()
    key = {"Authorization": f"Bearer {secret}"}
    with HTTPServer(host="127.0.0.1") as receiver:
        receiver.expect_request("/").respond_with_data(MARKER, status=500)
        bodies = make_bodies(receiver.url_for("/"))
        for path, operations in document["paths"].items():
            home = path.format_map(Names(job_id="job_0" + 26 * "0", core="all", version="m@3f2a94c1d07b"))
            for method, (kind, body) in itertools.product(operations, bodies):
                headers = key | {"Content-Type": kind, "X-Request-ID": "every-route"}
                answer = guarded.api.request(method, home, headers=headers, content=body)
                assert answer.status_code < 500, (method, path, body, answer.text)
        for kind, body in bodies[:2]:
            job = guarded.api.post("/v1/jobs", headers=key | {"Content-Type": kind}, content=body).json()
            assert guarded.api.get(f"/v1/jobs/{job['id']}?wait=30", headers=key).json()["status"] == "succeeded"
        eventually(lambda: len(receiver.log) > 0)
    told = guarded.log.read_text(errors="replace")
    assert '"level":"debug"' in told
    assert "every-route" in told
    assert MARKER not in told
    assert secret not in told
    traced = b"".join(post.body for post in collector.posts)
    assert b"POST /v1/jobs" in traced
    assert MARKER.encode() not in traced
    assert secret.encode() not in traced


class Names(dict[str, str]):
    """What stands for the names in paths: any that is not given here is a plain word."""

    def __missing__(self, name: str) -> str:
        return "word"


def make_bodies(webhook: str) -> list[tuple[str, bytes]]:
    """Bodies good and bad, with the marker wherever a caller may write; the first two are good jobs."""
    text, json_type = f"{MARKER} said so.", "application/json"
    item = {"id": MARKER, "question": f"Who is {MARKER}?", "context": text}
    good = {"items": [item], "metadata": {MARKER: text}, "webhook": {"url": webhook, "events": ["job.completed"]}}
    bad = [
        item | {"question": [text]},
        {"items": [{"question": text, "context": text, MARKER: text}]},
        {"items": [item | {"context": None, "context_id": MARKER}], "contexts": {"other": text}},
        good | {"options": {"top_k": text}},
        good | {"model": text},
        {"question": text, "context": text, "webhook": {"url": f"http://10.0.0.1/{MARKER}", "events": []}},
        text,
        [text],
    ]
    return [
        (json_type, orjson.dumps(good)),
        ("application/x-ndjson", orjson.dumps({"metadata": {"m": text}}) + b"\n" + orjson.dumps(item) + b"\n"),
        *((json_type, orjson.dumps(body)) for body in bad),
        (json_type, orjson.dumps(good)[:-20]),
        (json_type, text.encode() + b"\xff"),
        ("application/x-ndjson", orjson.dumps(item) + b"\n" + text.encode() + b"\n"),
        ("text/plain", text.encode()),
    ]


def test_shares_count_and_jobs_begin_at_their_time_whatever_is_killed(guarded: Fleet) -> None:
    asked = [{"question": f"Who wrote {n}?", "context": "Ada wrote it. " * 20} for n in range(3000)]
    new = ("keys", "create", "--name", "n", "--share")
    one, three = [corelane(*new, share, CORELANE_REDIS_URL=guarded.redis_url()).strip() for share in ("1", "3")]
    with Client(guarded.url, one) as beside, Client(guarded.url, three) as client:
        time = datetime.now(UTC) + timedelta(seconds=8)
        later = client.submit(asked[:40], not_before=time, priority="high")
        for part in ("redis", "keeper", "api"):
            guarded.signal(part)
        jobs = [each.submit(asked).id for each in (beside, client)]

        def served(least: int) -> list[int]:
            counts = [each.get(job).counts.succeeded for each, job in zip((beside, client), jobs, strict=True)]
            assert counts[1] >= least
            return counts

        before, after = eventually(lambda: served(500)), eventually(lambda: served(2500), 60)
        assert 2.4 < (after[1] - before[1]) / (after[0] - before[0]) < 3.6
        done = client.wait(later.id, 60)
        assert (done.counts.succeeded, str(done.started_at) >= f"{time:%Y-%m-%dT%H:%M:%S}") == (40, True)
