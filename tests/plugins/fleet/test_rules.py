"""How many cores the work asks for, and which host runs them."""

import pytest

from corelane.domain.scaling import HostRange
from corelane.engine.cores import core_range
from corelane.errors import SetupError
from corelane.plugins.fleet.rules import (
    HostCore,
    OpenLoad,
    asked_cores,
    core_seconds,
    next_step,
    share_cores,
)
from corelane.settings import Settings


@pytest.mark.parametrize(
    ("load", "asked"),
    [
        (OpenLoad(), 0),
        (OpenLoad(is_known=False), 1),
        (OpenLoad(tokens=1), 1),
        (OpenLoad(tokens=1, core_s=0.001), 1),
        (OpenLoad(tokens=9, core_s=30, cores=1, busy=0.2), 1),
        (OpenLoad(tokens=9, core_s=31, cores=1, busy=0.2), 2),
        (OpenLoad(tokens=9, core_s=300), 10),
        # What keeps two cores at work keeps them; it is no reason for a third.
        (OpenLoad(cores=2, busy=1.7), 2),
        (OpenLoad(cores=2, busy=2.0), 2),
        (OpenLoad(cores=2, busy=0.8), 1),
    ],
)
def test_work_asks_for_the_cores_that_do_it_in_time(load: OpenLoad, asked: int) -> None:
    assert asked_cores(load, 0, 30) == asked
    assert asked_cores(load, 3, 30) == max(3, asked)


def test_work_is_measured_by_the_speed_of_the_cores_that_hold_its_version() -> None:
    speeds, holders = {"a/0": 100.0, "b/0": 50.0}, {"v": ["a/0"], "w": ["b/0"]}
    assert core_seconds({"v": 1000, "w": 1000}, {"b/0": 100}, speeds, holders, {}) == 10 + 20 + 2


def test_remembered_speed_stands_for_cores_that_are_gone() -> None:
    assert core_seconds({"v": 1000}, {"gone/0": 100}, {}, {}, {"v": 100.0}) == 11
    assert core_seconds({"v": 1000}, {}, {"b/0": 50.0}, {"v": ["a/0"]}, {}) == 20


def test_unknown_speed_leaves_the_time_unknown() -> None:
    assert core_seconds({"v": 1000}, {}, {"a/0": 0.0}, {"v": ["a/0"]}, {}) is None
    assert core_seconds({}, {}, {}, {}, {}) == 0


def test_hosts_are_filled_in_the_order_of_their_names() -> None:
    hosts = [HostRange("b", 0, 2), HostRange("a", 0, 2), HostRange("c", 1, 4)]
    assert share_cores(0, hosts) == {"a": 0, "b": 0, "c": 1}
    assert share_cores(4, hosts) == {"a": 2, "b": 1, "c": 1}
    assert share_cores(99, hosts) == {"a": 2, "b": 2, "c": 4}
    assert share_cores(4, hosts, fixed=2) == {"a": 1, "b": 0, "c": 1}


def test_first_cores_run_and_last_ones_stop_first() -> None:
    two = [HostCore(0, is_running=True), HostCore(1, is_running=True), HostCore(2, is_running=False)]
    assert next_step(two, 2) == ([], [])
    assert next_step(two, 3) == ([2], [])
    assert next_step(two, 0) == ([], [1, 0])


def test_broken_core_runs_on_and_another_takes_its_place() -> None:
    cores = [HostCore(0, is_running=True, is_broken=True), HostCore(1, is_running=False)]
    assert next_step(cores, 1) == ([1], [])
    assert next_step(cores, 0) == ([], [])


def test_range_of_a_host_is_all_its_cores_unless_one_end_is_given() -> None:
    assert core_range(Settings(cores=1)) == (1, 1)
    assert core_range(Settings(cores=1, min_cores=0)) == (0, 1)
    assert core_range(Settings(cores=1, max_cores=1)) == (1, 1)
    with pytest.raises(SetupError, match="--max-cores 2: this host serves 1 at most"):
        core_range(Settings(cores=1, max_cores=2))
    with pytest.raises(SetupError, match="--min-cores 3: more than the 1 cores"):
        core_range(Settings(cores=1, min_cores=3))
