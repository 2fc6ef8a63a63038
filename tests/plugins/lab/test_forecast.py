"""The formula: exact where queueing theory is, the fewest cores for a load, and a refusal where none would do."""

import math

import pytest

from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.forecast import (
    CoresOutlook,
    Demand,
    LoadForecast,
    Mix,
    cut,
    demand_of_rate,
    demand_of_trace,
    windows_of,
)
from corelane.plugins.lab.planning.profile import BatchLimits, Contention, Overhead, Profile, ShapeTime
from corelane.plugins.lab.traces import TraceEntry

#: One row of 128 tokens takes 10 ms, and four 34.
PROFILE = Profile(version="v@1", shapes=[ShapeTime(rows=4, length=128, base_s=0.002, row_s=0.008)], exchange_s=0.0005)
#: Batches of one row, and nothing beside them.
ONE_ROW = Profile(version="v@1", shapes=[ShapeTime(rows=1, length=128, base_s=0.01, row_s=0)])
MIX = Mix([(100,)], 128)


def demand(rate: float, objective_s: float = 0.1, burstiness: float = 1.0) -> Demand:
    return demand_of_rate(rate, MIX, objective_s, burstiness=burstiness)


def look(profile: Profile, cores: int, asked: Demand) -> CoresOutlook:
    return LoadForecast(profile, asked).look(cores)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_waits_are_those_of_queueing_theory(load: float) -> None:
    """M/D/1 exactly, and M/M/4 by Erlang's formula within a few percent of a service."""
    assert look(ONE_ROW, 1, demand(100 * load)).wait_s == pytest.approx(0.01 * load / (2 * (1 - load)))
    assert look(ONE_ROW, 1, demand(100 * load, burstiness=0.0)).wait_s == 0, "an even load never waits"
    varied = ONE_ROW.model_copy(update={"noise": 1.0})
    offered = 4 * load
    waits = offered**4 / math.factorial(4) / (1 - load)
    odds = waits / (sum(offered**n / math.factorial(n) for n in range(4)) + waits)
    assert look(varied, 4, demand(400 * load)).wait_s == pytest.approx(0.01 * odds / (4 * (1 - load)), abs=0.0005)


def test_full_batches_carry_more_than_single_rows() -> None:
    single, full = 1 / 0.0105, 4 / 0.0345
    assert look(PROFILE, 1, demand(0.5 * single)).batch_rows == 1
    laden = look(PROFILE, 1, demand((single + full) / 2))
    assert 1 < laden.batch_rows < 4
    assert laden.busy == pytest.approx(1)
    assert look(PROFILE, 1, demand(1.01 * full)).p95_s == float("inf")


def test_batches_are_no_longer_than_the_latency_target() -> None:
    short = PROFILE.model_copy(update={"limits": BatchLimits(latency_target_s=0.02)})
    assert (PROFILE.most_rows(128), short.most_rows(128)) == (4, 2)


def test_cores_that_share_cpus_are_slower_together() -> None:
    seen = Contention(cores=2, requests_per_s=60, stretch=1.25, overhead=Overhead(reply_s=0.009))
    shared = ONE_ROW.model_copy(update={"cpus": 2, "contention": seen})
    assert look(shared, 2, demand(120)).p95_s > look(ONE_ROW, 2, demand(120)).p95_s + 0.001


def test_more_load_needs_more_cores_and_less_time_too() -> None:
    few, many = (LoadForecast(PROFILE, demand(rate)).find().cores for rate in (50, 300))
    assert 1 <= few < many
    assert LoadForecast(PROFILE, demand(300, 0.015)).find().cores > many


def test_the_answer_meets_the_objective_and_one_core_less_does_not() -> None:
    asked = demand(250)
    chosen = LoadForecast(PROFILE, asked).find()
    assert chosen.p95_s <= asked.goal_s < look(PROFILE, chosen.cores - 1, asked).p95_s
    assert LoadForecast(PROFILE, asked).breaking_rate(chosen.cores) >= 250
    assert chosen.p50_s < chosen.p95_s < chosen.p99_s


def test_the_rate_at_which_cores_break_is_the_largest_that_they_meet() -> None:
    rate = LoadForecast(PROFILE, demand(100)).breaking_rate(2)
    assert look(PROFILE, 2, demand(0.99 * rate)).p95_s <= 0.1 < look(PROFILE, 2, demand(1.01 * rate)).p95_s
    assert LoadForecast(PROFILE, demand(10, 0.005)).breaking_rate(1) == 0


def test_an_objective_below_the_time_of_one_question_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"on idle cores these requests take 1[01] ms"):
        LoadForecast(PROFILE, demand(50, 0.005)).find()


def test_a_trace_is_planned_for_as_its_busiest_part_is() -> None:
    even = [TraceEntry(n / 10, items=2, tokens=240) for n in range(100)]
    asked = demand_of_trace(even, 1.0, MIX, 0.2)
    assert asked.rate_per_s == pytest.approx(10, rel=0.02)
    assert asked.items_per_s == pytest.approx(20, rel=0.02)
    assert [asked.peak, asked.burstiness] == pytest.approx([1, 0], abs=1e-6)
    assert asked.requests[0] == [(120,), (120,)]
    assert demand_of_trace(even, 2.0, MIX, 0.2).rate_per_s == pytest.approx(20, rel=0.02)
    rush = [*(TraceEntry(10.0 * n) for n in range(60)), *(TraceEntry(600 + n / 5) for n in range(300))]
    assert demand_of_trace(rush, 1.0, MIX, 0.2).peak * demand_of_trace(rush, 1.0, MIX, 0.2).rate_per_s == pytest.approx(
        5, rel=0.05
    )


def test_windows_of_a_mix_are_those_that_the_service_would_cut() -> None:
    wide = PROFILE.model_copy(update={"shapes": [ShapeTime(rows=4, length=384, base_s=0.002, row_s=0.008)]})
    short, long = Mix.of([("Who?", "Ada was here."), ("Where was it found?", "word and more " * 400)], wide).items
    assert len(short) == 1
    assert len(long) == 6
    assert set(long[:-1]) == {384}
    assert windows_of(8, 100, 1.2, 384)[0] > windows_of(8, 100, 1.0, 384)[0]
    assert cut(1000, 384) == (384, 384, 232)
    assert cut(384, 384) == (384,)
