"""A real Prometheus scrapes a running service: whatever boards and rules ask for is there, and moves."""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import redis

from corelane.metrics.definitions import ALL, MetricKind
from tests.integration.test_event_streams import Api
from tests.monitoring.prometheus import Prometheus, prometheus, rules
from tests.monitoring.queries import MARKS, PANELS, RULES, named_metrics
from tests.tools.fleet import Fleet
from tests.tools.passages import PASSAGES
from tests.tools.receivers import receiver
from tests.tools.waiting import eventually

#: What only accidents or hardware move, or what passes too fast for a scrape; and where a test makes it happen.
STILL = {
    "corelane_core_device_errors_total": "tests/integration/test_neuron.py",
    "corelane_core_failed_models": "tests/plugins/console/test_overview.py",
    "corelane_core_out_of_service": "tests/monitoring/test_still.py",
    "corelane_core_waiting": "tests/monitoring/test_still.py",
    "corelane_core_restarts_total": "tests/monitoring/test_still.py",
    "corelane_deliveries_pending": "tests/corelane/test_metrics.py",
    "corelane_deliveries_dead": "tests/monitoring/test_still.py",
    "corelane_webhook_circuits_open": "tests/monitoring/test_still.py",
    "corelane_leases_lapsed_total": "tests/integration/test_metrics.py",
    "corelane_wasted_tokens_total": "tests/integration/test_metrics.py",
    "corelane_redis_replicas": "tests/failover/test_gate.py",
    "corelane_redis_replica_lag_bytes": "tests/failover/test_gate.py",
    "corelane_waiting_seconds": "tests/api/test_health.py",
    "corelane_paused_seconds": "tests/api/test_pauses.py",
    "corelane_paused_tokens": "tests/api/test_pauses.py",
}

#: Items of each job of a round. Cores claim some thousand tokens ahead, and some must wait beyond these.
ROUND = {"high": 55, "normal": 55, "low": 220}

#: Every query has data well within this, in seconds: some rates need two scrapes after their first event.
DATA_S = 240


def items(count: int) -> list[dict[str, object]]:
    return [{"question": question, "context": context} for question, context in list(PASSAGES.values()) * (count // 11)]


def ask_until(over: threading.Event, fleet: Fleet, second: Api, webhook: str) -> None:
    """Ask a job of each priority, with items that fail and a webhook, and follow each; round after round.

    Meanwhile the second API process refuses one. Its scrape measures how well the time held that it named.
    """
    too_long = [{"question": "why " * 900, "context": "Because."}] * 6
    with httpx2.Client(base_url=fleet.url, timeout=70) as api:
        while not over.is_set():
            jobs = []
            for priority, count in ROUND.items():
                body = {"items": [*items(count), *too_long], "priority": priority, "webhook": {"url": webhook}}
                jobs.append(api.post("/v1/jobs", json=body).raise_for_status().json()["id"])
            refused = second.http.post("/v1/jobs", json={"items": items(11)})
            assert refused.status_code in (202, 429), refused.text
            for job in jobs:
                with api.stream("GET", f"/v1/jobs/{job}/events") as events:
                    deque(events.iter_raw(), maxlen=0)
            second.http.get("/metrics")


@contextmanager
def load(fleet: Fleet, folder: Path) -> Iterator[None]:
    """Keep the service at work of every kind."""
    over = threading.Event()
    with (
        receiver(lambda n: (500 if n == 0 else 204, {}, b"")) as found,
        Api(fleet.redis_url(), folder, CORELANE_MAX_OUTSTANDING_TOKENS="4000") as second,
        ThreadPoolExecutor(1) as caller,
    ):
        asking = caller.submit(ask_until, over, fleet, second, found.url)
        try:
            yield
        finally:
            over.set()
        asking.result()


@contextmanager
def limited(fleet: Fleet) -> Iterator[None]:
    """Give its Redis a limit of memory, for a while."""
    with redis.Redis.from_url(fleet.redis_url()) as raw:
        raw.config_set("maxmemory", 1 << 33)
        try:
            yield
        finally:
            raw.config_set("maxmemory", 0)


@pytest.fixture(scope="module")
def watched(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start Prometheus beside the fleet, and keep the fleet at work until every query of the boards has data."""
    folder, missing = tmp_path_factory.mktemp("prometheus"), list(PANELS)

    def is_whole() -> bool:
        missing[:] = running.without_data(missing)
        return not missing

    with prometheus(folder, fleet.url.removeprefix("http://")) as running:
        with limited(fleet), load(fleet, folder), suppress(TimeoutError):
            eventually(is_whole, DATA_S)
        yield running


def test_every_query_of_the_boards_returns_data(watched: Prometheus) -> None:
    assert watched.without_data(PANELS) == []


def test_every_recording_rule_has_data_and_no_rule_fails(watched: Prometheus) -> None:
    groups = watched.ask("rules")["groups"]
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if rule.get("lastError")
    ] == []
    assert len([rule for group in groups for rule in group["rules"]]) == len(RULES)
    assert watched.without_data([rule["record"] for rule in rules("recording")]) == []


def test_no_alert_fires_but_that_items_fail_and_every_mark_is_a_query(watched: Prometheus) -> None:
    firing = watched.values('last_over_time(ALERTS{alertstate="firing"}[10m])')
    assert {each["metric"]["alertname"] for each in firing} <= {"CorelaneItemsFail"}
    for query in MARKS:
        watched.values(query)


def test_every_metric_that_boards_and_rules_name_is_there_and_moves(watched: Prometheus) -> None:
    def moves(name: str) -> bool:
        series = f"{name}_count" if ALL[name].kind is MetricKind.HISTOGRAM else name
        return bool(watched.values(f"max_over_time({series}[10m]) > 0"))

    assert {name for name in named_metrics() if not moves(name)} <= STILL.keys()
