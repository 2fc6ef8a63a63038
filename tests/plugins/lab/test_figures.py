from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.errors import InvalidInput
from corelane.plugins.lab.figures import Measurement, Objective, invalid, parse_objective, point_figures, summarise
from corelane.plugins.lab.schema import Generator, Request
from corelane.plugins.lab.stats import interval, percentile, spread, thinned, timeline
from tests.plugins.lab.queues import BEGAN_AT

times = st.floats(min_value=0, max_value=1e6, allow_nan=False)


def measured(requests: list[Request], generator: Generator | None = None) -> Measurement:
    return Measurement(requests, generator or generator_that_kept_up(), (1.0, 11.0), BEGAN_AT)


def generator_that_kept_up(late_s: float = 0.001, achieved: float = 10.0) -> Generator:
    return Generator(
        processes=1,
        requested_per_s=10.0,
        achieved_per_s=achieved,
        lateness=spread([late_s]),
        cpu_s=1.0,
        cpu_share=0.1,
    )


def request(number: int, intended_s: float, took_s: float | None, held_s: float = 0.0, **fields: object) -> Request:
    given = {"process": 0, "phase": "measured", "outcome": "ok", "items": 2, "tokens": 100} | fields
    ended_s = None if took_s is None else intended_s + took_s
    return Request(number=number, intended_s=intended_s, sent_s=intended_s + held_s, ended_s=ended_s, **given)


def obvious_percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least so many percent of all do not exceed, by counting."""
    return min(value for value in values if 100 * sum(each <= value for each in values) >= percent * len(values))


@given(st.lists(times, min_size=1, max_size=250), st.integers(1, 100))
def test_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float], percent: int) -> None:
    assert percentile(sorted(values), percent) == obvious_percentile(values, percent)


@given(st.lists(times, min_size=1, max_size=100))
def test_spread_is_in_order_and_within_the_values(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert min(values) <= found.p50 <= found.p90 <= found.p95 <= found.p99 <= found.max == max(values)
    assert min(values) <= found.mean <= max(values)
    assert found.count == len(values)


def test_interval_of_repeats() -> None:
    found = interval([10.0, 12.0, 11.0])
    # 11 ± 4.3027 · 1 / √3
    assert (found.low, found.mean, found.high) == pytest.approx((8.516, 11.0, 13.484), abs=1e-3)
    assert found.cv == pytest.approx(1 / 11)


def test_interval_of_one_run_is_its_value() -> None:
    found = interval([3.0])
    assert (found.low, found.mean, found.high, found.cv) == (3.0, 3.0, 3.0, 0.0)


def test_latencies_count_from_when_requests_were_due_and_from_their_sending() -> None:
    run = summarise(measured([request(at, 1.0 + at, 0.3, held_s=0.2) for at in range(10)]))
    assert run.latency is not None
    assert run.latency_sent is not None
    assert run.latency.p50 == pytest.approx(0.3)
    assert run.latency_sent.p50 == pytest.approx(0.1)
    assert run.latencies == pytest.approx([0.3] * 10)


def test_failures_are_counted_and_are_in_no_latency() -> None:
    failures = [
        request(8, 8.0, 5.0, outcome="error", error="run_failed", detail="it broke"),
        request(9, 9.0, 5.0, outcome="refused", error="overloaded", detail="too much work"),
        request(10, 9.5, None, outcome="unfinished"),
    ]
    run = summarise(measured([request(at, 1.0 + at, 0.1) for at in range(7)] + failures), Objective("latency", 0.2))
    assert run.latency is not None
    assert run.latency.max == pytest.approx(0.1)
    assert (run.requests, run.ok, run.failed, run.refused, run.unfinished) == (10, 7, 1, 1, 1)
    assert [(each.code, each.count, each.sample) for each in run.errors] == [
        ("run_failed", 1, "it broke"),
        ("overloaded", 1, "too much work"),
    ]
    assert run.goodput is not None
    assert run.goodput.share == pytest.approx(0.7)
    assert run.goodput.items_per_s == pytest.approx(1.4)


def test_warm_up_and_tail_are_in_no_latency_and_their_ends_within_the_window_are_in_throughput() -> None:
    requests = [
        request(0, 0.5, 0.7, phase="warmup"),
        request(1, 2.0, 0.1),
        request(2, 10.9, 0.5),
        request(3, 11.5, 0.1, phase="tail"),
    ]
    run = summarise(measured(requests))
    assert run.latency is not None
    assert run.latency.count == 2
    assert run.requests_per_s == pytest.approx(0.2)
    assert run.items_per_s == pytest.approx(0.4)
    assert run.tokens_per_s == pytest.approx(20)


@pytest.mark.parametrize("text", ["200ms", "0.2s", "latency<200ms", "latency <= 0.2 s"])
def test_objective_is_a_time_with_its_unit(text: str) -> None:
    assert parse_objective(text) == Objective("latency", 0.2)


@pytest.mark.parametrize("text", ["200", "p95<200ms", "0ms", "", "latency>200ms"])
def test_mistyped_objective_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no objective"):
        parse_objective(text)


def test_objective_of_the_first_answer() -> None:
    early = request(0, 1.0, 3.0, first_s=1.1)
    assert parse_objective("first<200ms").is_met(early)
    assert not parse_objective("200ms").is_met(early)
    assert not parse_objective("first<200ms").is_met(request(1, 1.0, 0.1))


def test_run_whose_generator_was_late_is_invalid() -> None:
    requests = [request(0, 2.0, 0.1)]
    assert invalid(generator_that_kept_up(), requests) == []
    assert "sent over 11 ms after" in invalid(generator_that_kept_up(late_s=0.011), requests)[0]
    assert "achieved 9.7 of 10.0 requests/s (97.0%)" in invalid(generator_that_kept_up(achieved=9.7), requests)[0]


def test_closed_loop_of_a_busy_generator_is_invalid() -> None:
    generator = Generator(processes=1, requested_per_s=None, achieved_per_s=50, cpu_s=9, cpu_share=0.95)
    assert "at work 95% of the time" in invalid(generator, [request(0, 2.0, 0.1)])[0]


def test_run_without_an_answer_is_invalid() -> None:
    assert invalid(generator_that_kept_up(), []) == ["no request belongs to the measured part"]
    failed = [request(0, 2.0, 0.1, outcome="error")]
    assert invalid(generator_that_kept_up(), failed) == ["no request was answered"]


def test_timeline_counts_by_second_over_all_phases() -> None:
    requests = [request(0, 0.2, 0.1, phase="warmup"), request(1, 1.1, 2.0), request(2, 1.2, 0.1)]
    rows = timeline(requests)
    assert [row["at_s"] for row in rows] == [0, 1, 2, 3]
    assert [row["sent"] for row in rows] == [1, 2, 0, 0]
    assert [row["ended"] for row in rows] == [1, 1, 0, 1]
    assert [row["in_flight"] for row in rows] == [0, 1, 1, 0]
    assert [row.get("p95_s") for row in rows] == pytest.approx([0.1, 0.1, None, 2.0])


def test_long_timeline_has_longer_steps() -> None:
    rows = timeline([request(0, 0.0, 0.5), request(1, 99.0, 0.5)], most=10)
    assert [row["at_s"] for row in rows] == list(range(0, 100, 10))
    assert rows[0]["sent"] == 0.1


@given(st.lists(times, min_size=1, max_size=300), st.integers(2, 50))
def test_thinned_values_keep_first_and_last(values: list[float], most: int) -> None:
    ordered = sorted(values)
    kept = thinned(ordered, most)
    assert len(kept) == min(most, len(ordered))
    assert (kept[0], kept[-1]) == (ordered[0], ordered[-1])
    assert kept == sorted(kept)


def test_figures_of_a_point_are_over_its_runs() -> None:
    runs = [
        summarise(measured([request(at, 1.0 + at, took) for at in range(10)]), Objective("latency", 1))
        for took in (0.1, 0.2, 0.3)
    ]
    found = point_figures(runs)
    assert found["p50_s"].mean == pytest.approx(0.2)
    assert found["p50_s"].values == pytest.approx([0.1, 0.2, 0.3])
    assert found["goodput"].mean == 1.0
    assert set(found) == {"p50_s", "p95_s", "p99_s", "mean_s", "items_per_s", "requests_per_s", "goodput"}
