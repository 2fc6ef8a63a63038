"""The simulated service against queueing theory, and against the rules of the real one."""

import math
import random
import statistics
from collections.abc import Iterator

import pytest

from corelane.plugins.lab.planning.profile import Limits, Profile, ShapeTime
from corelane.plugins.lab.planning.simulate import Arrival, Simulated, simulate

#: One question of one row, which takes 10 ms: 100 a second and core.
ROW_S = 0.01

#: A core claims one question of 128 tokens at a time: then all wait in one line, as in theory.
ONE_BY_ONE = Limits(claim_tokens=64)


def one_row(**changes: object) -> Profile:
    """Return a profile whose batches have one row, and that costs nothing else."""
    shape = ShapeTime(rows=1, length=128, base_s=ROW_S, row_s=0)
    return Profile(version="v@1", shapes=[shape], flexible_rows=False, limits=ONE_BY_ONE).model_copy(update=changes)


def poisson(rate: float, count: int, seed: int = 1, items: int = 1, tokens: int = 128) -> Iterator[Arrival]:
    """Return requests that come at random."""
    dice, at_s = random.Random(seed), 0.0
    for _ in range(count):
        at_s += dice.expovariate(rate)
        yield Arrival(at_s, [(tokens,)] * items)


def mean_wait(simulated: Simulated) -> float:
    """Return the mean time from arrival to the batch."""
    return statistics.fmean(job.began_s - job.at_s for job in simulated.jobs if job.began_s is not None)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_core_of_fixed_batches_waits_as_m_d_1_does(load: float) -> None:
    simulated = simulate(one_row(), 1, poisson(load / ROW_S, 6_000))
    theory = load * ROW_S / (2 * (1 - load))
    assert mean_wait(simulated) == pytest.approx(theory, rel=0.1)
    assert simulated.busy_s[0] / simulated.elapsed_s == pytest.approx(load, rel=0.03)


def erlang_c(cores: int, load: float) -> float:
    """Return the share of requests that wait in M/M/c."""
    offered = cores * load
    below = sum(offered**k / math.factorial(k) for k in range(cores))
    top = offered**cores / math.factorial(cores) / (1 - load)
    return top / (below + top)


@pytest.mark.parametrize(("cores", "load"), [(1, 0.7), (2, 0.6), (4, 0.8)])
def test_cores_of_random_batches_wait_as_m_m_c_does(cores: int, load: float) -> None:
    rate = cores * load / ROW_S
    simulated = simulate(one_row(), cores, poisson(rate, 8_000), noise=lambda dice: dice.expovariate(1.0))
    theory = erlang_c(cores, load) * ROW_S / (cores * (1 - load))
    assert mean_wait(simulated) == pytest.approx(theory, rel=0.15)


def test_the_same_seed_tells_the_same() -> None:
    profile = one_row(noise=0.3)
    first, again, other = (simulate(profile, 2, poisson(150, 2000), seed=seed).latencies for seed in (1, 1, 2))
    assert first == again != other


def test_every_request_is_answered_once_and_not_before_its_batch_could_end() -> None:
    simulated = simulate(one_row(limits=Limits()), 3, poisson(50, 600, items=5))
    assert len(simulated.latencies) == 600
    assert min(simulated.latencies) >= ROW_S
    assert simulated.rows == 3000


def test_flexible_batches_grow_with_the_load_up_to_the_target() -> None:
    shape = ShapeTime(rows=16, length=64, base_s=0.003, row_s=0.004)
    profile = Profile(version="v@1", shapes=[shape])
    sizes = []
    for rate in (20, 150, 230):
        simulated = simulate(profile, 1, poisson(rate, 1500, tokens=60))
        sizes.append(simulated.rows / simulated.batches)
    assert sizes == sorted(sizes)
    assert sizes[0] < 1.2
    assert 2 < sizes[-1] <= 15


def test_a_large_job_is_shared_among_cores() -> None:
    profile = one_row(limits=Limits())
    job = Arrival(0.0, [(128,)] * 400)
    alone, shared = (simulate(profile, cores, [job]).latencies[0] for cores in (1, 4))
    assert alone == pytest.approx(400 * ROW_S, rel=0.01)
    assert shared < 0.4 * alone


def test_a_question_goes_before_the_rest_of_a_large_job() -> None:
    profile = one_row(limits=Limits())
    simulated = simulate(profile, 1, [Arrival(0.0, [(128,)] * 2000), Arrival(1.0, [(128,)])])
    assert simulated.latencies[1] < 0.1 < simulated.latencies[0]


def test_an_idle_core_is_woken_and_a_sleeping_one_takes_longer() -> None:
    profile = one_row(wake_s=0.001, asleep_s=0.006)
    arrivals = [Arrival(at_s, [(128,)]) for at_s in (0.0, 0.5, 5.0)]
    assert simulate(profile, 1, arrivals).latencies == pytest.approx([0.011, 0.011, 0.016])


def test_where_batches_leave_the_cpu_free_the_trip_takes_place_meanwhile() -> None:
    arrivals = [Arrival(0.0, [(128,)] * 100)]
    rest = {"limits": Limits(), "exchange_s": 0.005}
    alone, beside = (simulate(one_row(overlaps=overlaps, **rest), 1, arrivals).latencies[0] for overlaps in (0, 1))
    assert beside < 0.8 * alone


def test_too_much_work_is_given_up() -> None:
    simulated = simulate(one_row(), 1, poisson(2000, 15_000))
    assert simulated.is_hopeless
    assert simulated.backlog > 10_000


def test_lone_requests_run_in_shapes_of_one_row_and_many_in_full_ones() -> None:
    shapes = [ShapeTime(rows=1, length=128, base_s=ROW_S, row_s=0), ShapeTime(rows=8, length=128, base_s=0.04, row_s=0)]
    profile = one_row().model_copy(update={"shapes": shapes, "limits": Limits()})
    alone = simulate(profile, 1, [Arrival(float(at), [(100,)]) for at in range(5)])
    assert max(alone.latencies) == pytest.approx(ROW_S)
    flood = simulate(profile, 1, [Arrival(0.0, [(100,)] * 32)])
    assert (flood.batches, flood.rows, flood.padding) == (4, 32, 32 * 28)
