"""The overview of the service, read from a real Redis as jobs come, wait and are answered."""

from collections.abc import Callable
from typing import Any

import pytest

from api import overview
from corelane.client import Client
from corelane.domain.forecast import Speed
from corelane.domain.jobs import Priority
from corelane.settings import Settings
from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, answer_all, claimed


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give a core that was announced once a lease for the whole test."""
    return settings.model_copy(update={"lease_s": 60})


@pytest.fixture
def read(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Return a reader of what is true now."""
    monkeypatch.setattr(overview, "KEPT_S", 0.0)

    def read() -> dict[str, Any]:
        reply = service.http.get("/v1/overview")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    return read


def test_service_without_work_is_idle(read: Callable[[], dict[str, Any]]) -> None:
    found = read()
    assert (found["forecast"]["sign"], found["forecast"]["open_items"]) == ("idle", 0)
    assert found["lanes"] == []
    assert [(core["name"], core["state"]) for core in found["cores"]] == [("a/0", "idle")]
    assert found["troubles"] == []


def test_waiting_work_is_shown_by_lane_until_it_is_answered(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    bench = service.bench
    core = bench.core("a/0", Speed(1000, 900, 1100))
    bench.submit(3)
    bench.submit(400, priority=Priority.LOW)
    found = read()
    assert found["forecast"]["open_items"] == 403
    assert found["forecast"]["sign"] == "draining"
    assert found["forecast"]["text"].startswith("403 waiting, clear in ")
    assert [(lane["version"], lane["priority"]) for lane in found["lanes"]] == [(VERSION, "normal"), (VERSION, "low")]
    total = sum(lane["waiting_tokens"] for lane in found["lanes"])
    assert total == pytest.approx(found["forecast"]["waiting_tokens"], rel=0.1)
    assert 0 < found["lanes"][0]["backlog_s"] < found["lanes"][1]["backlog_s"]
    claimed(core)
    assert read()["cores"][0]["claimed_tokens"] > 0
    answer_all(core)
    service.bench.upkeep.return_own("a/0")
    answer_all(core)
    found = read()
    assert (found["forecast"]["open_items"], found["lanes"], found["forecast"]["sign"]) == (0, [], "idle")


def test_age_of_the_oldest_work_grows(service: Service, read: Callable[[], dict[str, Any]]) -> None:
    job = service.bench.submit(1)
    service.bench.raw.hincrby(f"cl:job:{{{job}}}", "created_ms", -90_000)
    assert 90 <= read()["lanes"][0]["oldest_wait_s"] < 120


def test_work_that_no_core_takes_is_stalled_and_in_the_troubles(
    service: Service, read: Callable[[], dict[str, Any]]
) -> None:
    service.bench.submit(5)
    service.bench.raw.zrem("cl:cores", "a/0")
    service.bench.raw.delete("cl:core:a/0", f"cl:holders:{VERSION}")
    found = read()
    assert found["forecast"]["sign"] == "stalled"
    assert "no core lives" in found["forecast"]["text"]
    assert [trouble["part"] for trouble in found["troubles"]] == [VERSION]


def test_lost_core_and_webhooks_given_up_are_troubles(service: Service, read: Callable[[], dict[str, Any]]) -> None:
    service.bench.raw.delete("cl:core:a/0")
    service.bench.raw.zadd("cl:dead", {"evt_1": 1})
    troubles = {trouble["part"]: trouble["text"] for trouble in read()["troubles"]}
    assert "heartbeat" in troubles["a/0"]
    assert "given up" in troubles["webhooks"]


def test_many_readers_within_a_second_cost_one_reading(service: Service) -> None:
    with Client(service.url) as client:
        first = client.overview()
        service.bench.submit(1)
        assert client.overview() == first
