"""How long a core takes to consume again after its connection, its Redis or its child was lost.

Tests fail only for what does not come back by itself, whatever else runs on this machine. What was measured stands in
the report, beside what is promised.
"""

import os
import signal
import time
from typing import Any

import httpx2
import pytest
import redis

from api.jobs import POLL_S
from corelane.client import Client
from corelane.errors import CorelaneError
from tests.chaos.report import Report
from tests.tools.fleet import Fleet
from tests.tools.servers import DurableRedis
from tests.tools.waiting import eventually

#: What is promised, in seconds.
HALF_OPEN_S, RESTART_S, CHILD_S = 6, 4, 1

#: A job that nobody claims expires with the next sweep.
SWEEP_S = 3

#: A waiting caller is told at once that its job is final; one that nobody tells looks for itself every 5 s.
TOLD_S = 1

#: What takes longer than this has not come back by itself: the promises are told in the report, on a quiet machine they
#: hold, and beside other work they may not; seconds.
NEVER_S = 60

pytestmark = pytest.mark.chaos


@pytest.fixture
def fleet(one_core: Fleet) -> Fleet:
    """One core, and an engine that takes no time."""
    return one_core


@pytest.fixture
def raw(one_core_redis: Any) -> Any:
    return one_core_redis


def answered_after(fleet: Fleet, began: float) -> float:
    """Seconds from ``began`` until a question asked now is answered."""
    with fleet.client(patience_s=0, timeout_s=10) as client:
        while True:
            try:
                client.ask("What is the number?", "The number is 1.")
                return time.monotonic() - began
            except CorelaneError:
                if time.monotonic() - began > 60:
                    raise
                time.sleep(0.05)


def make_lingering(fleet: Fleet) -> None:
    """Leave the drain waiting for more, right after it has answered."""
    with Client(fleet.url) as client:
        client.ask("What is the number?", "The number is 1.")


def make_asleep(raw: Any) -> None:
    """Wait until the drain has ended: only a message on its queue wakes the core."""
    eventually(lambda: not raw.exists("cl:bell:testhost/0") and not raw.llen("core.testhost.0"))


def refuses_writes(raw: Any) -> bool:
    try:
        raw.set("probe", 1)
        raw.delete("probe")
    except redis.ResponseError:
        return True
    return False


def half_open(fleet: Fleet, part: str) -> int:
    """Leave a part's connections to Redis half-open; return how many there are."""
    assert fleet.proxy is not None
    return fleet.proxy.half_open(fleet.ports_of(part))


def check(report: Report, what: str, seconds: float, promised: float) -> None:
    report.measured[f"{what} (promised {promised} s)"] = round(seconds, 2)
    assert seconds < NEVER_S


def test_half_open_connections_of_a_sleeping_core(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    make_asleep(raw)
    began = time.monotonic()
    assert half_open(fleet, "core0") > 0
    check(report, "half-open, core asleep: answers again after", answered_after(fleet, began), HALF_OPEN_S)


def test_half_open_connections_of_a_lingering_core(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    began = time.monotonic()
    assert half_open(fleet, "core0") > 0
    check(report, "half-open, drain lingers: answers again after", answered_after(fleet, began), HALF_OPEN_S)


def test_half_open_connections_of_the_api(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    began = time.monotonic()
    assert half_open(fleet, "api") > 0
    check(report, "half-open, API: answers again after", answered_after(fleet, began), HALF_OPEN_S)


def test_redis_restart(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    with fleet.client() as client:
        job = client.get(client.submit([{"question": "What is the number?", "context": "The number is 1."}]).id, 30)
    assert job.usage is not None
    fleet.redis.kill()
    fleet.redis.start()
    check(report, "Redis restarted: answers again after", answered_after(fleet, time.monotonic()), RESTART_S)
    with fleet.client() as client:
        assert client.get(job.id).usage == job.usage


def test_death_of_the_child(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    child = eventually(lambda: fleet.child_of("core0"))
    assert child is not None
    began = time.monotonic()
    os.kill(child, signal.SIGKILL)
    check(report, "child killed, no model to load: answers again after", answered_after(fleet, began), CHILD_S)


@pytest.mark.slow
def test_redis_that_was_away_for_long(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    make_asleep(raw)
    fleet.redis.kill()
    time.sleep(15)
    fleet.redis.start()
    check(report, "Redis away for 15 s: answers again after", answered_after(fleet, time.monotonic()), RESTART_S)


def test_waiting_callers_are_told_after_a_full_disk(fleet: Fleet, raw: Any, report: Report) -> None:
    make_lingering(fleet)
    assert isinstance(fleet.redis, DurableRedis)
    fleet.redis.fill_disk()
    eventually(lambda: refuses_writes(raw))
    time.sleep(5)  # longer than the API stays silent on its subscription
    fleet.redis.free_disk()
    fleet.wait_whole(60)
    answered_after(fleet, time.monotonic())
    fastest = min(answered_after(fleet, time.monotonic()) for _ in range(3))
    check(report, "after a full disk, fastest of 3 questions", fastest, TOLD_S)
    assert fastest < POLL_S


def test_keeper_whose_clock_was_put_back(fleet: Fleet, raw: Any, report: Report) -> None:
    """Its sweep ends a job that nobody claims, as every process of its core is stopped."""
    child = eventually(lambda: fleet.child_of("core0"))
    assert child is not None
    fleet.move_clock("keeper", -6 * 3600)
    fleet.signal("core0", signal.SIGSTOP)
    os.kill(child, signal.SIGSTOP)
    try:
        with httpx2.Client(base_url=fleet.url, timeout=60) as http:
            item = {"question": "What is the number?", "context": "The number is 1."}
            job = http.post("/v1/jobs", json={**item, "expires_in_s": 0.5}).json()["id"]
            began = time.monotonic() + 0.5
            status = http.get(f"/v1/jobs/{job}", params={"wait": "20"}).json()["status"]
    finally:
        os.kill(child, signal.SIGCONT)
        fleet.signal("core0", signal.SIGCONT)
    assert status == "expired"
    check(report, "keeper's clock put back by 6 h: sweeps again after", time.monotonic() - began, SWEEP_S)


def test_redis_that_comes_back_empty_is_told_again_what_each_core_holds(fleet: Fleet, raw: Any) -> None:
    before = httpx2.get(f"{fleet.url}/v1/models", timeout=60).json()["data"]
    raw.flushall()
    answered_after(fleet, time.monotonic())
    eventually(lambda: httpx2.get(f"{fleet.url}/readyz").status_code == 200, NEVER_S)
    models = httpx2.get(f"{fleet.url}/v1/models", timeout=60).json()["data"]
    assert [(each["id"], each["aliases"]) for each in models] == [(each["id"], each["aliases"]) for each in before]
    assert not any(each["waiting_for"] for each in models)
    set_to = httpx2.put(f"{fleet.url}/v1/aliases/again", json={"weights": {models[0]["id"]: 1}}, timeout=60)
    assert set_to.status_code == 200, set_to.text
