"""The overview of the service, read from a real Redis as jobs come, wait and are answered."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from corelane.cli.doctor import check_service
from corelane.client import Client
from corelane.domain.conditions import DISK_FULL
from corelane.domain.dispatch import Core
from corelane.plugins.console import overviews
from corelane.plugins.console.history import Sampler
from corelane.settings import Settings
from corelane.store.deliveries.sending import Attempt
from corelane.store.fleet import Announcer
from corelane.store.health_issues import PartReport
from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, Bench, answer_all, answered, claimed
from tests.tools.deliveries import Deliveries, schedule
from tests.tools.waiting import eventually
from workers.core.heartbeat import Vitals


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give a core that was announced once a lease for the whole test."""
    return settings.model_copy(update={"lease_s": 60})


@pytest.fixture
def read(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Return a reader of what is true now."""
    monkeypatch.setattr(overviews, "KEPT_S", 0.0)
    service.bench.upkeep.went_round()
    service.bench.with_link(lambda link: Sampler(link, "keeper").sample())

    def read() -> dict[str, Any]:
        reply = service.http.get("/v1/overview")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    return read


def test_service_without_work_has_nothing_to_say(read: Callable[[], dict[str, Any]]) -> None:
    found = read()
    assert (found["waiting"]["text"], found["waiting"]["open_items"]) == ("nothing waits", 0)
    assert [(core["name"], core["state"]) for core in found["cores"]] == [("a/0", "idle")]
    assert found["troubles"] == []


def test_what_waits_is_told_with_the_time_that_the_cores_need(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    bench = service.bench
    core = bench.core("a/0", 1000.0)
    bench.submit(3)
    job = bench.submit(400)
    bench.raw.hincrby(f"cl:job:{{{job}}}", "created_ms", -90_000)
    found = read()
    waiting, [model] = found["waiting"], found["models"]
    assert (waiting["open_items"], waiting["tokens"], waiting["tokens_per_s"]) == (403, 403 * 64, 1000.0)
    assert waiting["seconds"] == pytest.approx(25.8, abs=0.1)
    assert waiting["text"] == "403 items wait, 25 s of work"
    assert (model["version"], model["waiting_tokens"]) == (VERSION, 403 * 64)
    claimed(core)
    found = read()
    assert found["cores"][0]["claimed_tokens"] > 0
    assert found["waiting"]["seconds"] == waiting["seconds"], "what is at work is not done yet"
    assert 90 <= found["models"][0]["oldest_wait_s"] < 120
    answer_all(core)
    service.bench.upkeep.return_own("a/0")
    answer_all(core)
    assert read()["waiting"]["text"] == "nothing waits"


def test_what_was_done_in_the_last_minute_is_counted_exactly(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    bench = service.bench
    core = bench.core("a/0", 1000.0)
    bench.submit(30)
    bench.submit(12)
    answer_all(core)
    found = read()
    assert found["last_minute"] == {"items": 42, "jobs": 2, "failed": 0}
    [model] = found["models"]
    assert (model["version"], model["error_rate"]) == (VERSION, 0)
    assert model["items_per_s"] > 0
    assert found["latency"]["p95_s"] is not None


def test_work_that_no_core_takes_is_a_health_issue(service: Service, read: Callable[[], dict[str, Any]]) -> None:
    service.bench.submit(5)
    service.bench.raw.zrem("cl:cores", "a/0")
    service.bench.raw.delete("cl:core:a/0", f"cl:holders:{VERSION}")
    found = read()
    assert found["waiting"]["text"] == "5 items wait, and no core lives"
    [issue] = found["troubles"]
    assert (issue["part"], issue["alert"], "no core lives" in issue["text"]) == (
        VERSION,
        "CorelaneVersionNotHeld",
        True,
    )


def lose_core(bench: Bench) -> None:
    bench.core("a/0").claim([VERSION], linger=False)
    bench.raw.delete("cl:core:a/0")


def fail_to_load(bench: Bench) -> None:
    models = [{"version": "n@1", "state": "failed", "reason": "the file is damaged"}]
    bench.raw.hset("cl:core:a/0", "models", orjson.dumps(models))


def fail_items(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(8)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))


@pytest.mark.parametrize(
    ("befalls", "part", "text"),
    [
        (lose_core, "a/0", "its work waits, as no other core lives"),
        (fail_to_load, "a/0", "could not load n@1: the file is damaged"),
        (fail_items, VERSION, "8 of 8 items of the last minute failed; `GET /"),
        (lambda bench: bench.raw.zadd("cl:dead", {"evt_1": 1}), "webhooks", "given up"),
        (
            lambda bench: bench.raw.hset("cl:rounds", "history", bench.upkeep._link.now_ms() - 90_000),
            "keeper",
            "no point",
        ),
    ],
    ids=["lost core", "failed model", "failures", "webhooks", "history"],
)
def test_health_issue_is_told_with_its_part(
    service: Service, read: Callable[[], dict[str, Any]], befalls: Callable[[Bench], object], part: str, text: str
) -> None:
    befalls(service.bench)
    found = read()
    [issue] = found["troubles"]
    assert (issue["part"], text in issue["text"]) == (part, True), issue
    if befalls is lose_core:
        assert [(core["name"], core["state"]) for core in found["cores"]] == [("a/0", "lost")]
    if befalls is fail_to_load:
        assert 'corelane_core_failed_models{core="a/0"} 1.0' in service.http.get("/metrics").text


def test_disk_of_redis_that_is_full_is_the_one_thing_that_is_wrong(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    """A folder in the place of the snapshot fails its writing as a full disk does. Heartbeats stop with it."""
    raw = service.bench.raw
    snapshot = Path(raw.config_get("dir")["dir"]) / raw.config_get("dbfilename")["dbfilename"]
    service.bench.submit(5)
    raw.delete("cl:core:a/0", f"cl:holders:{VERSION}")
    snapshot.unlink(missing_ok=True)
    snapshot.mkdir()
    try:
        raw.bgsave()
        eventually(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err")
        assert "redis" not in [each["part"] for each in read()["troubles"]], "its append-only file is written"
        raw.config_set("appendonly", "no")
        found = read()
        assert DISK_FULL in service.http.get("/readyz").json()["detail"]
        assert [(each["part"], each["text"]) for each in found["troubles"]] == [("redis", DISK_FULL)]
        assert DISK_FULL in check_service(service.bench.settings).found
        assert "corelane_redis_writes 0.0" in service.http.get("/metrics").text
    finally:
        snapshot.rmdir()
        raw.bgsave()
        eventually(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "ok")
        raw.config_set("appendonly", "yes")
    assert "corelane_redis_writes 1.0" in service.http.get("/metrics").text


def test_host_of_webhooks_that_rests_is_named_with_its_time(
    service: Service, read: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.store.deliveries.sending.CIRCUIT_FAILURES", 1)
    settings = service.bench.settings
    schedule(settings, "batch.completed", "batch_0x", "public", "https://hooks.example.org/", {})
    deliveries = Deliveries(settings)
    [taken] = deliveries.take(1)
    # Its circuit lets one through after 30 s, and nothing is due to go before this one: that is when it is tried.
    failed = {"is_host_well": False, "pause_s": 300, "rest_s": 0, "window_s": 1e6}
    deliveries.report(taken, "failed", Attempt(0, 500, 1, None, ""), **failed)
    [issue] = read()["troubles"]
    assert re.match(r"hooks.example.org fails and is tried again in (300|29\d) s; see", issue["text"])


def test_core_that_left_as_it_was_asked_to_is_no_health_issue(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    core = service.bench.core("a/0")
    core.claim([VERSION], linger=False)
    core.leave([VERSION], service.bench.bell)
    assert (read()["cores"], read()["troubles"]) == ([], [])


def test_part_that_does_not_stay_up_is_told_until_it_does_or_nobody_says_so(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    def tell(issues: dict[str, str]) -> None:
        service.bench.with_link(lambda link: PartReport(link, "host#7").tell(issues))

    tell({"flower": "it does not come up"})
    assert [issue["part"] for issue in read()["troubles"]] == ["flower on host"]
    details = service.http.get("/readyz").json()["details"]
    assert details["parts"] == {"state": "red", "waits_s": 0.0, "parts": ["flower on host"]}
    assert "flower on host: it does not come up" in check_service(service.bench.settings).found
    tell({})
    assert read()["troubles"] == []
    assert service.bench.raw.exists("cl:parts") == 0
    tell({"flower": "it does not come up"})
    words = orjson.loads(service.bench.raw.hget("cl:parts", "host#7"))
    service.bench.raw.hset("cl:parts", "host#7", orjson.dumps(words | {"at_ms": words["at_ms"] - 30_000}))
    assert read()["troubles"] == []


def test_nearly_full_redis_and_a_keeper_that_never_ran_are_health_issues(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    raw = service.bench.raw
    used = raw.info("memory")["used_memory"]
    raw.config_set("maxmemory", int(used * 1.05))
    raw.delete("cl:rounds")
    try:
        assert [issue["part"] for issue in read()["troubles"]] == ["keeper", "redis"]
    finally:
        raw.config_set("maxmemory", 0)


def test_keeper_that_starts_after_young_cores_is_no_health_issue(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    service.bench.raw.delete("cl:rounds")
    young = Vitals(Core("a", 0)).fields([])
    for lived, parts in (({}, []), ({"lived_s": 90.0}, ["keeper"])):
        Announcer(service.bench.settings, "a/0").beat({"state": "idle"} | young | lived, [VERSION], [])
        assert [issue["part"] for issue in read()["troubles"]] == parts


def test_many_readers_within_a_second_cost_one_reading(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine takes longer than a second for the two.
    monkeypatch.setattr(overviews, "KEPT_S", 3600.0)
    with Client(service.url) as client:
        first = client.overview()
        service.bench.submit(1)
        assert client.overview() == first
