"""What scalers read: how many cores there should be, as the keeper works it out from a real Redis."""

from typing import Any

import pytest

from corelane.client import Client
from corelane.plugins.fleet.scaler import Scaler
from corelane.settings import Settings
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.scaling import ScaledHost, leave_scaling, read_stopped, tell_host
from tests.api.conftest import Service
from tests.corelane.store_bench import VERSION, answer_all, claimed

#: Tokens of an item that ``Bench.submit`` makes.
ITEM_TOKENS = 64


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Have no core unless work asks for one, and one more for each ten seconds of work; forget within a minute."""
    return settings.model_copy(update={"min_cores": 0, "scale_backlog_s": 10, "scale_in_s": 60, "lease_s": 60})


class Watcher:
    """A keeper that looks when it is told to."""

    def __init__(self, service: Service) -> None:
        self._service, self._link = service, Link(service.bench.settings.redis_url)

    def look(self) -> dict[str, Any]:
        """Return what scalers read after one more look."""
        assert self._link.read(lambda read: Scaler(read, "keeper", self._service.bench.settings).look()) is not None
        reply = self._service.http.get("/v1/scaling")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())


@pytest.fixture
def watcher(service: Service) -> Watcher:
    return Watcher(service)


def test_without_a_keeper_there_is_no_figure(service: Service) -> None:
    reply = service.http.get("/v1/scaling")
    assert (reply.status_code, reply.json()["code"]) == (503, "not_ready")
    assert "\ncorelane_desired_cores " not in service.http.get("/metrics").text


def test_cores_are_wanted_by_the_time_that_open_work_takes(service: Service, watcher: Watcher) -> None:
    bench, speed = service.bench, 64.0
    assert watcher.look()["desired"] == 0
    core = bench.core("a/0", speed)
    bench.submit(35)
    found = watcher.look()
    assert (found["cores"], found["desired"]) == (1, 4)
    assert found["backlog_core_s"] == found["backlog_s"] == 35
    # What a core is at work on counts as well.
    claim = claimed(core)
    found = watcher.look()
    assert found["claimed_tokens"] == ITEM_TOKENS * sum(ref.count for ref, _ in claim.refs)
    assert (found["asked"], found["backlog_core_s"]) == (4, 35)
    with Client(service.url) as client:
        assert client.scaling().desired == 4
    assert "\ncorelane_desired_cores 4.0\n" in service.http.get("/metrics").text


def test_cores_go_only_once_fewer_were_enough_for_a_while(service: Service, watcher: Watcher) -> None:
    bench = service.bench
    core = bench.core("a/0", 64.0)
    bench.submit(25)
    assert watcher.look()["desired"] == 3
    bench.upkeep.return_lapsed()
    answer_all(core)
    found = watcher.look()
    assert (found["asked"], found["desired"]) == (0, 3)
    bench.age(61)
    bench.core("a/0")
    assert watcher.look()["desired"] == 0


def test_work_that_no_core_is_there_for_wants_a_core_at_the_remembered_speed(
    service: Service, watcher: Watcher
) -> None:
    bench = service.bench
    bench.submit(40)
    bench.age(100)
    found = watcher.look()
    assert (found["cores"], found["desired"], found["backlog_s"]) == (0, 1, None)
    # 1,000 estimated tokens took 10 s.
    Announcer(bench.settings, "a/0").beat(
        {"state": "idle"}, [], [], costs=[(VERSION, "many:plain:0", [10, 1000, 900, 10, 10_000_000])]
    )
    bench.age(100)
    found = watcher.look()
    assert found["backlog_core_s"] == pytest.approx(40 * ITEM_TOKENS / 100, rel=0.01)
    assert (found["cores"], found["desired"]) == (0, 3)


def test_service_that_never_had_a_core_wants_one(service: Service, watcher: Watcher) -> None:
    service.bench.raw.flushdb()
    assert watcher.look()["desired"] == 1


def test_hosts_tell_which_cores_an_autoscaler_has_stopped(service: Service, watcher: Watcher) -> None:
    link = Link(service.bench.settings.redis_url)
    host = ScaledHost("a", 2, 4, ["a/0", "a/1"], ["a/2", "a/3"])
    link.read(lambda read: tell_host(read, host))
    found = watcher.look()
    assert (found["desired"], found["stopped"]) == (2, ["a/2", "a/3"])
    link.read(lambda read: leave_scaling(read, "a"))
    assert link.read(read_stopped) == {}
