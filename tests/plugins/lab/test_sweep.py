"""Sweep, knee, over-saturation and the search for a rate, on a made-up service whose capacity is known."""

import math

import pytest

from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.figures import Objective, parse_objective
from corelane.plugins.lab.find_rate import BOUNDED, PRECISION, FoundRate, Try, find_rate, next_rate
from corelane.plugins.lab.render import found_text
from corelane.plugins.lab.schema import Load, LoadPoint
from corelane.plugins.lab.sweep import (
    IDLE,
    MOST_MORE,
    PEAK,
    SweepPlan,
    bend,
    find_knee,
    poisson,
    saturation,
    sweep,
    trend,
)
from tests.plugins.lab.queues import Queue

#: Two cores of 20 ms a request.
CAPACITY_PER_S = 100.0


def test_sweep_goes_from_idle_over_the_knee_and_stops_where_the_service_cannot_keep_up() -> None:
    found = sweep(Queue().measure, SweepPlan(points=8, duration_s=40))
    assert [point.name for point in found.points[:2]] == [IDLE, PEAK]
    assert found.points[0].figures["p50_s"].mean == pytest.approx(0.02)
    assert found.points[1].figures["requests_per_s"].mean == pytest.approx(CAPACITY_PER_S, rel=0.01)
    rates = [point.load.rate_per_s or 0.0 for point in found.points[2:]]
    assert rates == sorted(rates)
    assert rates[-1] > CAPACITY_PER_S * 0.95
    assert list(found.over) == [found.points[-1].name]
    assert "the queue grew by" in found.stopped
    assert found.invalid == []
    assert found.knee is not None
    assert 0.6 * CAPACITY_PER_S < found.knee["rate_per_s"] <= CAPACITY_PER_S
    assert found.knee["p95_s"] < 0.2
    assert found.knee["items_per_s"] == pytest.approx(found.knee["rate_per_s"], rel=0.15)


def test_service_that_does_more_than_its_callers_showed_is_offered_more() -> None:
    class Shy(Queue):
        def measure(self, name: str, load: Load) -> LoadPoint:
            point = super().measure(name, load)
            if load.kind == "closed":
                point.figures["requests_per_s"].mean /= 2
            return point

    found = sweep(Shy().measure, SweepPlan(points=4, duration_s=30))
    assert len(found.points) > 2 + 4
    assert found.points[-1].name in found.over
    endless = sweep(Shy(cores=500).measure, SweepPlan(points=2, callers=8, duration_s=2))
    assert len(endless.points) == 2 + 2 + MOST_MORE
    assert endless.stopped == ""


def test_sweep_ends_where_the_generator_was_late() -> None:
    found = sweep(Queue(lateness_s=0.05).measure, SweepPlan(points=5, duration_s=10))
    assert len(found.points) == 3
    assert "proves nothing: the generator was late" in found.stopped
    [reason] = found.invalid
    assert "the generator was late" in reason
    assert found.knee is None


def test_sweep_of_a_service_that_answers_nothing_says_so() -> None:
    def silent(name: str, load: object) -> LoadPoint:
        return LoadPoint(name=name, load=Load(kind="closed", concurrency=1), runs=[])

    with pytest.raises(SetupError, match="nothing was answered"):
        sweep(silent, SweepPlan())


def test_stable_load_near_the_limit_is_seldom_taken_for_over_saturation() -> None:
    verdicts = [
        saturation(Queue().measure("x", poisson(0.9 * CAPACITY_PER_S, 60, seed)).runs[0], 90.0) for seed in range(12)
    ]
    assert sum(map(bool, verdicts)) <= 1


def test_slight_over_saturation_is_found() -> None:
    verdicts = [
        saturation(Queue().measure("x", poisson(1.1 * CAPACITY_PER_S, 60, seed)).runs[0], 110.0) for seed in range(6)
    ]
    assert all(verdicts)


def test_refusals_are_over_saturation() -> None:
    found = saturation(Queue(refuses_beyond=10).measure("x", poisson(200, 30, 1)).runs[0], 200.0)
    assert "refused" in found


def test_trend_has_its_interval_and_needs_some_points() -> None:
    assert trend([(0, 1), (1, 2), (2, 3)]) is None
    found = trend([(float(at), 3.0 * at + (at % 7)) for at in range(64)])
    assert found is not None
    assert found.low < 3.0 < found.high
    assert found.low > 0
    flat = trend([(float(at), float(at % 3)) for at in range(60)])
    assert flat is not None
    assert flat.low <= 0


def test_bend_of_two_lines_is_where_they_join() -> None:
    points = [(float(rate), math.exp(-3 + 0.01 * rate + 0.2 * max(0, rate - 60))) for rate in range(10, 101, 10)]
    found = bend(points)
    assert found is not None
    assert found[0] == pytest.approx(60, abs=1)
    assert found[1] == pytest.approx(math.exp(-2.4), rel=0.05)


def test_one_line_has_no_bend() -> None:
    assert bend([(float(rate), math.exp(0.02 * rate)) for rate in range(10, 101, 10)]) is None
    assert bend([(1.0, 0.1), (2.0, 0.1), (3.0, 0.5)]) is None


def test_knee_without_a_bend_is_the_last_rate_that_could_be_served() -> None:
    points = [Queue(cores=50).measure(f"{rate}", poisson(rate, 30)) for rate in (10, 20, 30, 40, 50)]
    knee = find_knee(points, {"50"})
    assert knee is not None
    assert (knee["rate_per_s"], knee["fitted"]) == (40, 0)
    assert find_knee(points, {"10", "20", "30", "40", "50"}) is None


def test_found_rate_is_close_below_the_limit_confirmed_and_says_what_broke_above() -> None:
    queue = Queue()
    found = find_rate(queue.measure, Objective("p95", 0.06), start_per_s=40, duration_s=30, seed=3)
    assert found.rate_per_s is not None
    assert 0.5 * CAPACITY_PER_S < found.rate_per_s < CAPACITY_PER_S
    assert found.figure_s is not None
    assert found.figure_s <= 0.06
    assert found.points[-1].load.duration_s == 90
    assert found.broke is not None
    assert found.broke.rate_per_s > found.rate_per_s
    assert "p95 was" in found.broke.reason or "over-saturated" in found.broke.reason
    assert {load.seed for load in queue.loads} == {3}
    described = found.describe()
    assert "requests/s hold p95<=60ms" in found_text(described)
    assert found.invalid == []
    assert described["objective"] == "p95<=60ms"
    assert described["rate_per_s"] == found.rate_per_s
    assert len(described["tries"]) == len(found.tries)


def test_search_that_starts_too_high_goes_down() -> None:
    found = find_rate(Queue().measure, Objective("p99", 0.1), start_per_s=900, duration_s=10)
    assert found.rate_per_s is not None
    assert found.rate_per_s < CAPACITY_PER_S


def test_objective_that_no_rate_holds_has_no_answer() -> None:
    found = find_rate(Queue().measure, Objective("mean", 0.005), start_per_s=10, duration_s=10)
    assert found.rate_per_s is None
    assert "no rate that was tried holds mean<=5ms" in found_text(found.describe())
    assert found.broke is not None
    assert "mean was 2" in found.broke.reason


def test_search_says_that_the_generator_was_the_limit() -> None:
    with pytest.raises(SetupError, match="the generator kept up with no rate"):
        find_rate(Queue(lateness_s=1).measure, Objective("p95", 1), start_per_s=10, duration_s=10)


def test_rate_at_which_the_generator_was_late_once_is_tried_again() -> None:
    queue, lateness = Queue(), iter((1.0,))

    def measure(name: str, load: Load) -> LoadPoint:
        queue.lateness_s = next(lateness, 0.0)
        return queue.measure(name, load)

    found = find_rate(measure, Objective("p95", 0.06), start_per_s=40, duration_s=30)
    assert [(each.rate_per_s, each.holds) for each in found.tries[:2]] == [(40, False), (40, True)]
    assert found.broke is not None
    assert found.broke.rate_per_s > 40
    assert not found.describe()["limited_by_generator"]
    tries = [Try(50, False, None), Try(50, True, None), Try(60, False, None)]
    assert FoundRate(Objective("p95", 0.06), 40, tries=tries).broke == tries[2], "50 held at another time"


def test_search_halves_the_gap_until_it_is_narrow() -> None:
    low, high = 0.0, None
    while (rate := next_rate(low, high, 10)) is not None:
        low, high = (rate, high) if rate <= 73 else (low, rate)
    assert high is not None
    assert low <= 73 < high <= low * (1 + PRECISION)


@pytest.mark.parametrize("text", ["p95", "p90=1ms", "p95=0ms", "p95=200", "goodput=0.9"])
def test_objective_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no objective"):
        parse_objective(text, BOUNDED)
