"""What alerts are about and a healthy service never moves: each figure moves when its accident happens."""

from typing import Any

import pytest
import redis

from corelane.domain.jobs import Webhook
from corelane.settings import Settings
from corelane.store.deliveries.sending import Attempt
from corelane.store.fleet import Announcer
from corelane.store.gauges import read_all
from corelane.store.link.blocking import Link
from tests.corelane.store_bench import VERSION, Bench, answer_all
from tests.tools.deliveries import Deliveries


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


def gauges(bench: Bench) -> dict[tuple[str, ...], float]:
    """Return what the store shows now, by name and labels."""
    _, samples = Link(bench.settings.redis_url).read(read_all)
    return {(sample.metric.name, *sample.labels): sample.value for sample in samples}


def test_core_that_its_errors_ended_counts_restarts_and_says_that_it_is_out(bench: Bench) -> None:
    Announcer(bench.settings, "a/0").beat({"state": "idle"}, [VERSION], [])
    assert gauges(bench)["corelane_core_out_of_service", "a/0"] == 0
    Announcer(bench.settings, "a/0").beat({"state": "out_of_service", "restarts": 3}, [], [], is_out=True)
    shown = gauges(bench)
    assert shown["corelane_core_restarts_total", "a/0"] == 3
    assert shown["corelane_core_out_of_service", "a/0"] == 1


def test_core_that_waits_for_its_device_says_so(bench: Bench) -> None:
    Announcer(bench.settings, "a/0").beat({"state": "waiting"}, [], [])
    assert gauges(bench)["corelane_core_waiting", "a/0"] == 1
    Announcer(bench.settings, "a/0").beat({"state": "idle"}, [VERSION], [])
    assert gauges(bench)["corelane_core_waiting", "a/0"] == 0


def test_webhook_that_is_given_up_is_a_dead_letter_and_its_host_rests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.store.deliveries.sending.CIRCUIT_FAILURES", 1)
    store = Deliveries(bench.settings)
    core = bench.core("a/0")
    for host in ("a.test", "b.test"):
        bench.submit(1, webhook=Webhook(url=f"https://{host}/"))
    answer_all(core)
    before = gauges(bench)
    assert (before["corelane_deliveries_dead",], before["corelane_webhook_circuits_open",]) == (0, 0)
    failed: dict[str, Any] = {"is_host_well": False, "rest_s": 0, "window_s": 1e6}
    again, given_up = store.take(2)
    store.report(again, "failed", Attempt(0, 500, 1, None, ""), pause_s=5, **failed)
    store.report(given_up, "failed", Attempt(0, 500, 1, None, ""), pause_s=None, **failed)
    shown = gauges(bench)
    assert shown["corelane_deliveries_dead",] == 1
    assert shown["corelane_webhook_circuits_open",] >= 1
    assert shown["corelane_deliveries_total", "dead"] == 1
