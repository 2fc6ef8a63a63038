from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from corelane.errors import InvalidInput
from corelane.plugins.lab.load import RunPlan, Schedule
from corelane.plugins.lab.schema import Load
from corelane.plugins.lab.traces import TraceEntry, write_trace


def schedule(load: Load, **given: Any) -> Schedule:
    return RunPlan(load, **({"warmup_s": 2.0, "duration_s": 3.0, "tail_s": 1.0} | given)).schedule()


def phases_of(made: Schedule) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"warmup": [], "measured": [], "tail": []}
    for shot in made.shots():
        found[shot.phase].append(shot.at_s)
    return found


def test_parts_follow_each_other_without_a_pause() -> None:
    made = schedule(Load(kind="constant", rate_per_s=2))
    times = [shot.at_s for shot in made.shots()]
    assert times == [number / 2 for number in range(12)]
    found = phases_of(made)
    assert [len(found[name]) for name in ("warmup", "measured", "tail")] == [4, 6, 2]
    assert made.due() == 6


def test_requests_may_bound_the_measured_part() -> None:
    made = schedule(Load(kind="poisson", rate_per_s=5, seed=4), duration_s=None, requests=17)
    assert len(phases_of(made)["measured"]) == made.due() == 17


def test_the_warm_up_is_as_the_ramp_begins_and_the_tail_as_it_ends() -> None:
    load = Load(kind="ramp", rate_per_s=2, detail={"end_per_s": 10, "seconds": 3.0})
    found = phases_of(schedule(load))
    assert len(found["warmup"]) == 4
    assert len(found["tail"]) == 10
    assert len(found["measured"]) == 18


def test_all_of_a_trace_is_measured(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", [TraceEntry(0.0), TraceEntry(2.0, 5, 900), TraceEntry(4.0)])
    load = Load(kind="trace", detail={"path": str(tmp_path / "trace"), "speed": 2.0})
    made = schedule(load, duration_s=None)
    measured = [shot for shot in made.shots() if shot.phase == "measured"]
    assert [(shot.at_s, shot.items, shot.tokens) for shot in measured] == [
        (2.0, 1, None),
        (3.0, 5, 900),
        (4.0, 1, None),
    ]
    assert made.due() == 3


def test_random_parts_are_drawn_apart() -> None:
    found = phases_of(schedule(Load(kind="poisson", rate_per_s=20), duration_s=2.0, tail_s=2.0))
    gaps = [[later - sooner for sooner, later in pairwise(times)][:5] for times in found.values()]
    assert gaps[0] != gaps[1] != gaps[2]


def test_a_load_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--duration"):
        schedule(Load(kind="constant", rate_per_s=2), duration_s=None)
