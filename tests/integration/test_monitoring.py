"""A real Prometheus scrapes a running service: whatever boards and rules ask for is there, and moves."""

import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitoring import boards
from tests.integration.conftest import Fleet, wait_for
from tests.monitoring.prometheus import Prometheus, prometheus, rules
from tests.passages import PASSAGES
from tests.receivers import receiver

#: What only accidents or hardware move, and where a test makes them happen.
STILL = {
    "corelane_core_device_errors_total": "tests/integration/test_neuron.py",
    "corelane_core_out_of_service": "tests/integration/test_neuron.py",
    "corelane_core_restarts_total": "tests/integration/test_neuron.py",
    "corelane_deliveries_dead": "tests/integration/test_webhooks.py",
    "corelane_webhook_circuits_open": "tests/integration/test_webhooks.py",
    "corelane_leases_lapsed_total": "tests/integration/test_metrics.py",
    "corelane_wasted_tokens_total": "tests/integration/test_metrics.py",
    "corelane_redis_memory_limit_bytes": "deploy: none is set here",
    "corelane_waiting_seconds": "tests/api/test_health.py",
}

#: Stands for Grafana's variables: ranges that hold some scrapes.
VARIABLES = {"$__rate_interval": "20s", "$__interval": "20s"}

NAME = re.compile(r"\bcorelane_\w+")


#: Callers that keep every core busy.
CALLERS = 3

#: Every query has data well within this, in seconds: some rates need two scrapes after their first event.
DATA_S = 60


def asked(query: str) -> str:
    """Return a query with Grafana's variables filled in."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


#: Every query of the boards.
QUERIES = [asked(query) for board in boards.ALL for panel in board.panels() for query, _ in panel.queries]

RULES = [*rules("recording"), *rules("alerts")]


def named_metrics() -> set[str]:
    """Return every metric of ours that boards and rules name."""
    expressions = [*QUERIES, *(query for _, query, *_ in boards.MARKS), *(rule["expr"] for rule in RULES)]
    return {name.removesuffix("_bucket") for expression in expressions for name in NAME.findall(expression)}


def totals(fleet: Fleet) -> Mapping[str, float]:
    """Scrape the service: the sum of each metric over its labels; of a histogram, how many values it has."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(fleet.api.get("/metrics").text):
        for sample in family.samples:
            name = sample.name.removesuffix("_count") if family.type == "histogram" else sample.name
            if family.type != "histogram" or name == family.name:
                found[name] = found.get(name, 0.0) + sample.value
    return found


def items(count: int) -> list[dict[str, object]]:
    return [{"question": question, "context": context} for question, context in list(PASSAGES.values()) * (count // 11)]


def ask_until(over: threading.Event, fleet: Fleet, webhook: str) -> None:
    """Ask one job after another, of each priority in turn, with an item that fails and a webhook."""
    too_long = {"question": "why " * 900, "context": "Because."}
    with httpx2.Client(base_url=fleet.url, timeout=70) as api:
        for priority in cycle(("high", "normal", "low")):
            body = {"items": [*items(110), too_long], "priority": priority, "webhook": {"url": webhook}}
            api.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"}).raise_for_status()
            api.get("/v1/jobs/none")
            if over.is_set():
                return


@contextmanager
def load(fleet: Fleet) -> Iterator[None]:
    """Keep the service at work of every kind."""
    over = threading.Event()
    with receiver(lambda n: (500 if n == 0 else 204, {}, b"")) as found, ThreadPoolExecutor(CALLERS) as callers:
        asking = [callers.submit(ask_until, over, fleet, found.url) for _ in range(CALLERS)]
        try:
            yield
        finally:
            over.set()
    for each in asking:
        each.result()


@pytest.fixture(scope="module")
def watched(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start Prometheus beside the fleet, and keep the fleet at work until every query of the boards has data."""
    with prometheus(tmp_path_factory.mktemp("prometheus"), fleet.url.removeprefix("http://")) as running:
        with load(fleet), suppress(TimeoutError):
            wait_for(lambda: all(running.values(query) for query in QUERIES), DATA_S)
        yield running


def test_every_query_of_the_boards_returns_data(watched: Prometheus) -> None:
    assert [query for query in QUERIES if not watched.values(f"last_over_time(({query})[5m:1s])")] == []


def test_every_recording_rule_has_data_and_no_rule_fails(watched: Prometheus) -> None:
    groups = watched.ask("rules")["groups"]
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if rule.get("lastError")
    ] == []
    assert len([rule for group in groups for rule in group["rules"]]) == len(RULES)
    assert [
        rule["record"] for rule in rules("recording") if not watched.values(f"last_over_time({rule['record']}[5m])")
    ] == []


def test_no_alert_fires_and_every_mark_is_a_query(watched: Prometheus) -> None:
    assert watched.values('ALERTS{alertstate="firing"}') == []
    for _, query, *_ in boards.MARKS:
        watched.values(asked(query))


def test_every_metric_that_boards_and_rules_name_is_there_and_moves(fleet: Fleet, watched: Prometheus) -> None:
    shown = totals(fleet)
    assert named_metrics() - STILL.keys() <= shown.keys()
    moved = {name for name in shown if watched.values(f"max_over_time({name}[5m]) > 0") or shown[name] > 0}
    assert named_metrics() - STILL.keys() <= moved
