"""How many cores the work asks for, by the open work."""

import pytest

from corelane.plugins.fleet.rules import OpenLoad, asked_cores, core_seconds


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
