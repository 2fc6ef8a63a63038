"""The figures of a run, from requests that are given."""

import pytest

from corelane.plugins.bench.figures import figures_of
from corelane.plugins.bench.load import Request, Run
from corelane.plugins.bench.measure import busy_shares


def test_percentiles_are_of_answered_requests_and_failures_are_counted_by_code() -> None:
    requests = [Request(due_s=0.1 * each, ended_s=0.1 * each + 0.001 * (each + 1), answered=2) for each in range(100)]
    requests += [Request(1.0, 9.0, failures=["overloaded"], is_failed=True)] * 3
    requests += [Request(1.0, 1.05, answered=1, failures=["invalid_item"])]
    found = figures_of(Run(requests, seconds=20.0, cpu_s=5.0))
    assert (found["p50_ms"], found["p95_ms"]) == (pytest.approx(50.5, abs=0.6), pytest.approx(95.5, abs=1))
    assert found["failed"] == {"overloaded": 3, "invalid_item": 1}
    assert (found["requests"], found["items"], found["items_per_s"]) == (104, 201, 10.05)
    assert found["client_cpu"] == 0.25
    assert (found["f1"], found["cost_per_million"]) == (None, None)


def test_items_that_were_answered_after_the_load_count_in_latency_and_not_in_throughput() -> None:
    found = figures_of(Run([Request(0.0, 1.0, answered=1), Request(9.0, 12.0, answered=1)], seconds=10.0))
    assert (found["items_per_s"], found["p99_ms"]) == (0.1, pytest.approx(2980))


def test_a_run_without_answers_has_neither_times_nor_a_cost() -> None:
    found = figures_of(Run([Request(0.0, 1.0, failures=["timeout"], is_failed=True)], seconds=10.0), price_per_hour=1.0)
    assert (found["p50_ms"], found["items_per_s"], found["cost_per_million"]) == (None, 0, None)


def test_cost_and_f1() -> None:
    found = figures_of(Run([Request(0.0, 1.0, answered=2, f1=(1.0, 0.5))], seconds=1.0), price_per_hour=0.228)
    assert found["f1"] == 75
    assert found["cost_per_million"] == pytest.approx(31.6667, abs=1e-4)


def test_a_core_that_was_started_anew_counts_from_nothing() -> None:
    assert busy_shares({"a/0": 5.0, "a/1": 5.0}, {"a/0": 9.0, "a/1": 1.0, "a/2": 20.0}, 10.0) == {
        "a/0": 0.4,
        "a/1": 0.1,
        "a/2": 1.0,
    }
