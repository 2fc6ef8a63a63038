import math
import statistics
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.errors import InvalidInput
from corelane.plugins.lab.arrivals import Arrivals, ramp, replay, stages, steady
from corelane.plugins.lab.traces import TraceEntry, read_trace, trace_hash, write_trace


def test_constant_arrivals_are_at_even_distances() -> None:
    assert list(islice(steady(4).times(), 4)) == [0.0, 0.25, 0.5, 0.75]


def test_arrivals_end_where_their_time_does() -> None:
    assert list(steady(2, seconds=2).times()) == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize(("made", "cv"), [(steady(10, burstiness=cv, seed=3), cv) for cv in (1.0, 3.0, 0.3)])
def test_random_arrivals_have_their_rate_and_burstiness(made: Arrivals, cv: float) -> None:
    times = list(islice(made.times(), 20_000))
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.08)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.08)


def test_the_same_seed_draws_the_same_arrivals() -> None:
    first, again, other = (list(islice(steady(5, burstiness=1, seed=seed).times(), 50)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_ramp_has_as_many_requests_before_each_time_as_its_rate_adds_up_to() -> None:
    times = list(ramp(0, 20, 10).times())
    assert len(times) == 100
    # At t the rate is 2t, so t² have come.
    for number, at_s in enumerate(times):
        assert at_s**2 == pytest.approx(number, abs=1e-6)


def test_a_falling_ramp_ends_at_its_time() -> None:
    times = list(ramp(20, 0, 10).times())
    assert len(times) == 100
    assert times[-1] < 10
    assert all(later > sooner for sooner, later in pairwise(times))


def test_stages_follow_each_other() -> None:
    times = list(stages("1@4s, 10@1m").times())
    assert [at_s for at_s in times if at_s < 4] == [0.0, 1.0, 2.0, 3.0]
    assert len(times) == 604
    assert max(times) < 64


def test_a_stage_without_requests_is_a_pause() -> None:
    assert list(stages("2@1s,0@10s,1@2s").times()) == [0.0, 0.5, 11.0, 12.0]


@pytest.mark.parametrize("text", ["", "10", "10@", "x@3s", "5@0s", "0@10s"])
def test_bad_stages_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        stages(text)


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_a_rate_has_an_end_and_is_above_zero(rate: float) -> None:
    with pytest.raises(InvalidInput):
        steady(rate)


@given(
    rates=st.lists(st.floats(0.5, 50), min_size=1, max_size=4),
    burstiness=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    seed=st.integers(0, 100),
)
def test_arrivals_are_in_order_and_within_their_time(rates: list[float], burstiness: float, seed: int) -> None:
    made = stages(",".join(f"{rate}@2s" for rate in rates), burstiness=burstiness, seed=seed)
    times = list(made.times())
    assert times == sorted(times)
    assert all(0 <= at_s < 2 * len(rates) for at_s in times)
    assert made.seconds == 2 * len(rates)
    if burstiness == 0:
        assert len(times) == pytest.approx(2 * sum(rates), abs=1.01)


def test_a_steady_rate_says_what_it_is() -> None:
    made = steady(5, seconds=10)
    assert (made.rate_per_s, made.first_per_s, made.last_per_s, made.seconds) == (5, 5, 5, 10)
    assert ramp(1, 3, 10).rate_per_s == 2
    assert steady(7).rate_per_s == 7


def test_a_trace_is_replayed_at_its_speed(tmp_path: Path) -> None:
    entries = [TraceEntry(0.0), TraceEntry(1.0, 3, 700), TraceEntry(4.0, 2)]
    write_trace(tmp_path / "trace", entries)
    assert read_trace(tmp_path / "trace") == entries
    made = replay(entries, 2.0)
    assert list(made.times()) == [0.0, 0.5, 2.0]
    assert [(items, tokens) for _, items, tokens in made.due()] == [(1, None), (3, 700), (2, None)]
    assert made.seconds == 2.0


def test_a_trace_is_known_by_what_it_says() -> None:
    entries = [TraceEntry(0.0), TraceEntry(1.0, 3)]
    assert trace_hash(entries) == trace_hash([TraceEntry(0.0, 1), TraceEntry(1.0, 3)])
    assert trace_hash(entries) != trace_hash(entries[:1])


@pytest.mark.parametrize("line", ["{}", "[]", "no", '{"at_s": -1}', '{"at_s": 1, "items": 0}', '{"at_s": "x"}'])
def test_a_bad_line_of_a_trace_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text('{"at_s": 0}\n' + line)
    with pytest.raises(InvalidInput, match="line 2"):
        read_trace(tmp_path / "trace")


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("\n")
    with pytest.raises(InvalidInput, match="no requests"):
        read_trace(tmp_path / "trace")
