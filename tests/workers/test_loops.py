"""Loops go on whatever a round comes to, and a process with one that stands still ends."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from corelane.broker.app import make_celery
from corelane.errors import StoreUnavailable
from corelane.log import Outage, get_logger
from corelane.metrics.liveness import LivenessFile, read_liveness
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.store.gauges import read_all
from corelane.store.health_issues import find_issues
from corelane.store.link.blocking import Link
from corelane.store.plugin import StorePlugin
from corelane.store.upkeep import Upkeep
from corelane.tracing import TracingPlugin
from tests.corelane.store_bench import VERSION, announce
from tests.tools.waiting import eventually
from workers.loops.loop import STUCK_CHECKS, STUCK_STATUS, Guard, Loop
from workers.plugin import WorkerPlugin
from workers.roles import loops_by_queue

OUTAGE = Outage(get_logger(__name__), "store")


def test_loop_goes_on_after_every_error_and_begins_again_after_one_nobody_foresaw() -> None:
    errors = [StoreUnavailable("Redis is away")] * 3 + [ValueError("nobody foresaw this"), None]
    begun: list[int] = []
    went_on, ended = threading.Event(), threading.Event()

    def begin() -> Callable[[], object]:
        begun.append(len(errors))

        def go_round() -> None:
            if error := errors.pop(0):
                raise error
            errors.append(None)
            went_on.set()

        return go_round

    loop = Loop("test", begin, pause_s=0, outage=OUTAGE, end=ended.set)
    loop.start()
    assert went_on.wait(60)
    loop.ask_to_stop()
    assert loop.join(60)
    assert ended.is_set()
    assert begun == [5, 1]


def test_process_ends_when_a_loop_that_must_move_stands_still() -> None:
    still, slow, moving = (
        Loop(name, lambda: bool, pause_s=0, outage=OUTAGE, must_move=name != "slow") for name in ("a", "slow", "b")
    )
    ends: list[int] = []
    guard = Guard([slow, moving], ends.append)
    strict = Guard([still, moving], ends.append)
    for _ in range(STUCK_CHECKS + 1):
        assert ends == []
        moving.rounds += 1
        guard.check()
        strict.check()
    assert ends == [STUCK_STATUS]


def test_guard_gives_signs_of_life_and_says_when_every_loop_has_gone_round(tmp_path: Path) -> None:
    loops = [Loop(name, lambda: bool, pause_s=0, outage=OUTAGE, must_move=False) for name in ("a", "b")]
    guard = Guard(loops, liveness=LivenessFile(tmp_path, "keeper@pod"))
    states = []
    for rounds in (0, 1):
        loops[0].rounds, loops[1].rounds = 1, rounds
        guard.note_liveness()
        states += [(sign.part, sign.state) for sign in read_liveness(tmp_path)]
    assert states == [("keeper@pod", "starting"), ("keeper@pod", "running")]
    guard.start()
    guard.stop()
    eventually(lambda: read_liveness(tmp_path) == [])


def test_plugin_whose_hooks_raise_stops_neither_the_keeper_nor_what_reads_the_whole_service(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, bell: str
) -> None:
    announce(settings, "test/0", VERSION, ["default"])
    hooks = {WorkerPlugin: ["loops"], TracingPlugin: ["tracer"], StorePlugin: ["gauges", "health_issues"]}
    for door, names in hooks.items():
        for name in names:
            monkeypatch.setattr(installed(door)[0], name, lambda *_: 1 / 0)
    for make, _ in loops_by_queue(make_celery(settings), settings).values():
        assert {"watch", "metrics"} < {loop.name for loop in make()}
    assert Upkeep(settings, bell).forget() == 0
    link = Link(settings.redis_url)
    assert link.read(read_all)[1]
    link.read(find_issues)
