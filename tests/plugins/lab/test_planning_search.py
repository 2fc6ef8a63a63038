"""The fewest cores for a load: found, explained, and refused where none would do."""

import pytest

from corelane.domain.arrivals import poisson, replay
from corelane.domain.traces import TraceEntry
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.mix import Lengths, Mix, cut, lengths_of
from corelane.plugins.lab.planning.profile import Profile, ShapeTime
from corelane.plugins.lab.planning.search import Demand, breaking_rate, edges, find, look, percentile

#: One row of 128 tokens takes 10 ms.
PROFILE = Profile(version="v@1", shapes=[ShapeTime(rows=4, length=128, base_s=0.002, row_s=0.008)], exchange_s=0.0005)
MIX = Mix([(100,)], 128)


def demand(rate: float, objective_s: float = 0.1, **changes: object) -> Demand:
    arrivals = lambda seed: poisson(rate, seed)  # noqa: E731
    return Demand(arrivals, MIX, objective_s, **({"requests": 400} | changes))  # type: ignore[arg-type]


def test_more_load_needs_more_cores_and_less_time_too() -> None:
    few, many = (find(PROFILE, demand(rate, requests=100)).cores for rate in (50, 300))
    assert 1 <= few < many
    assert find(PROFILE, demand(300, 0.03, requests=100)).cores > many


def test_the_answer_meets_the_objective_and_one_core_less_is_slower() -> None:
    asked = demand(250)
    chosen = find(PROFILE, asked)
    assert chosen.met >= asked.confidence
    assert 0 < chosen.busy < 1
    beside = edges(PROFILE, chosen.cores, asked)
    assert beside.fewer is not None
    assert beside.fewer.p95_s > chosen.p95_s > beside.more.p95_s
    assert beside.breaks_at_per_s >= 250


def test_the_rate_at_which_cores_break_is_the_largest_that_they_meet() -> None:
    rate = breaking_rate(PROFILE, 2, demand(100))
    assert look(PROFILE, 2, demand(0.97 * rate, margin=0.0), 3).met == 1
    assert look(PROFILE, 2, demand(1.1 * rate, margin=0.0), 3).met < 1


def test_an_objective_below_the_time_of_one_question_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"on idle cores these requests take 1[01] ms"):
        find(PROFILE, demand(50, 0.005))


def test_a_trace_says_when_and_how_much() -> None:
    entries = [TraceEntry(n / 10, items=2, tokens=240) for n in range(100)]
    asked = Demand(lambda _: replay(entries), MIX, 0.2)
    assert asked.rate_per_s == pytest.approx(10, rel=0.02)
    assert asked.items_per_s == pytest.approx(20, rel=0.02)
    requests = list(asked.run(1))
    assert [len(request.items) for request in requests] == [2] * 100
    assert requests[0].items[0] == (120,)


def test_windows_of_a_mix_are_those_that_the_service_would_cut() -> None:
    [short, long] = lengths_of([("Who?", "Ada was here."), ("Where was it found?", "word and more " * 400)])
    assert len(short.windows(1.0, 384)) == 1
    windows = long.windows(1.0, 384)
    assert len(windows) == 6
    assert set(windows[:-1]) == {384}
    assert Lengths(8, 100).windows(1.2, 384)[0] > Lengths(8, 100).windows(1.0, 384)[0]
    assert cut(1000, 384) == (384, 384, 232)
    assert cut(384, 384) == (384,)


def test_percentiles_lie_between_their_neighbours() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert percentile([5.0], 0.99) == 5.0


def test_cores_that_miss_the_objective_at_any_rate_break_at_none() -> None:
    assert breaking_rate(PROFILE, 1, demand(10, 0.005, requests=50)) == 0
