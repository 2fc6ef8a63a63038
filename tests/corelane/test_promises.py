import math
import random
import statistics
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.forecast import (
    ENOUGH,
    KEPT,
    Own,
    Residuals,
    Size,
    forecast,
    kind_of,
    tokens_ahead,
    tokens_until,
)
from corelane.store.backlog import drain_rate

OWED = st.dictionaries(
    st.tuples(st.sampled_from(["me", "a", "b", "c"]), st.integers(0, 2)), st.integers(1, 10**9), max_size=12
)


#: Jobs whose intervals are looked at.
RUNS = 1500

SITUATIONS = Path(__file__).parent / "retry_situations.json"

#: Small jobs, their tokens, larger jobs.
OWN = st.builds(Own, st.integers(0, 100), st.integers(0, 10**6), st.integers(0, 1000))


NOTHING = Own()


def ahead(owed: dict[tuple[str, int], int], priority: int, tokens: int, slices: int = 1, own: Own = NOTHING) -> int:
    return tokens_ahead(owed, "me", priority, Size(tokens, slices), own)


def test_other_owners_count_for_no_more_than_ones_own_share() -> None:
    assert ahead({("flood", 1): 10**9}, 1, 100) == 100
    assert ahead({("flood", 1): 10**9, ("me", 1): 1000}, 1, 100, own=Own(10, 1000, 0)) == 1000 + 1100
    assert ahead({("a", 1): 50, ("b", 1): 70}, 1, 100) == 120


def test_lower_priorities_do_not_count_and_higher_ones_do_whole() -> None:
    assert ahead({("me", 2): 10**9, ("me", 0): 5000}, 1, 100) == 5000


def test_lone_question_is_not_promised_the_end_of_its_owners_batch() -> None:
    assert ahead({("me", 1): 10**6}, 1, 100, own=Own(larger_jobs=1)) == 100
    assert ahead({("me", 1): 10**6}, 1, 100, own=Own(20, 2000, 3)) == 2100


def test_larger_job_shares_with_its_owners_other_larger_jobs() -> None:
    assert ahead({("me", 1): 10**6}, 1, 5000, 2, Own(larger_jobs=1)) == 5000
    assert ahead({("me", 1): 10**6}, 1, 5000, 2, Own(20, 2000, 3)) == 2000 + 3 * 5000
    assert ahead({("me", 1): 6000}, 1, 5000, 2, Own(20, 2000, 3)) == 6000


@given(OWED, st.integers(0, 2), st.integers(1, 10**6), st.integers(1, 5), OWN)
def test_more_tokens_never_have_less_before_them(
    owed: dict[tuple[str, int], int], priority: int, tokens: int, slices: int, own: Own
) -> None:
    assert ahead(owed, priority, tokens, slices, own) <= ahead(owed, priority, tokens + 1, slices, own)
    assert 0 <= ahead(owed, priority, tokens, slices, own) <= sum(owed.values())


def test_own_tokens_are_answered_beside_as_many_of_each_other_owner() -> None:
    assert tokens_until({("me", 1): 1000}, "me", 400) == 400
    assert tokens_until({("me", 1): 1000, ("a", 1): 10**9, ("b", 1): 300}, "me", 400) == 400 + 400 + 300
    assert tokens_until({("me", 1): 1000, ("a", 2): 10**9}, "me", 400) == 400
    assert tokens_until({("me", 0): 100, ("a", 0): 5000, ("me", 1): 1000, ("b", 1): 9000}, "me", 400) == 5100 + 600
    assert tokens_until({("me", 1): 100}, "me", 400) == 100


def test_forecast_needs_a_measured_speed() -> None:
    assert forecast(10, 10, 1, []) is None


def test_job_of_one_slice_runs_on_one_core_behind_what_all_cores_do() -> None:
    speeds = [100.0] * 2
    found = forecast(1000, 100, 1, speeds)
    assert found is not None
    assert (found.expected_s, found.reckoned_s) == pytest.approx((6, 6))
    assert found.earliest_s < 4 < 9 < found.latest_s
    wide = forecast(1000, 100, 8, speeds)
    assert wide is not None
    assert wide.expected_s == pytest.approx(5.5)


def test_forecast_follows_the_residuals_of_its_kind() -> None:
    speeds = [100.0]
    plain = forecast(0, 100, 1, speeds)
    assert plain is not None
    told = forecast(0, 100, 1, speeds, Residuals({plain.kind: [70] * KEPT}))
    assert told is not None
    assert (told.expected_s, told.reckoned_s) == pytest.approx((math.exp(0.7), 1))


@pytest.mark.parametrize(("known", "most"), [(0, 1.0), (3, 1.0), (8, 1.0), (ENOUGH, 0.94), (30, 0.94), (KEPT, 0.94)])
def test_nine_in_ten_lie_within_the_interval_and_more_while_few_are_known(known: int, most: float) -> None:
    rng = random.Random(known)
    inside = 0
    for _ in range(RUNS):
        spread = Residuals({"11": [round(rng.gauss(20, 30)) for _ in range(known)]}).spread("11")
        inside += spread.low <= math.exp(rng.gauss(0.2, 0.3)) <= spread.high
    assert 0.87 < inside / RUNS <= most


def test_few_residuals_draw_the_expectation_towards_their_mean() -> None:
    assert Residuals({"11": [60, 60]}).spread("11").middle == pytest.approx(math.exp(0.4))


def test_interval_needs_no_normal_distribution_and_follows_a_change() -> None:
    rng = random.Random(1)
    inside: list[bool] = []
    kept: list[int] = []
    for number in range(RUNS):
        slow = math.log(3) if number > RUNS // 2 else 0.0
        took = math.exp(slow + rng.expovariate(4) - (0.5 if rng.random() < 0.3 else 0))
        spread = Residuals({"11": kept}).spread("11")
        inside.append(spread.low <= took <= spread.high)
        kept = [*kept, round(100 * math.log(took))][-KEPT:]
    assert 0.87 < sum(inside) / RUNS < 0.93
    assert 0.85 < sum(inside[-RUNS // 4 :]) / len(inside[-RUNS // 4 :]) < 0.95


def test_texts_that_are_no_residuals_are_left_out() -> None:
    found = Residuals.decode([(b"11", b"+007-012" * 10), (b"12", b"what"), (b"13", b"+700")])
    assert found.spread("11").low == pytest.approx(math.exp(-0.12))
    assert found.spread("12") == found.spread("14")


def test_kind_tells_the_part_that_waits_and_how_long_it_takes() -> None:
    kinds = [kind_of(ahead, 1000, seconds) for ahead, seconds in ((0, 0.01), (100, 0.01), (1000, 1.0), (9000, 1000.0))]
    assert len(set(kinds)) == len(kinds) - 1
    assert all(len(kind) == 2 and kind.isdigit() for kind in kinds)


def test_time_to_come_back_is_what_it_took_in_situations_that_were_recorded() -> None:
    """Two hundred refusals under changing load: what the service knew, and the seconds it took."""
    errors = []
    for situation in orjson.loads(SITUATIONS.read_bytes()):
        speeds = [float(speed.split()[0]) for speed in situation["speeds"]]
        rate = drain_rate(situation["answered"], speeds)
        owed = {(owner, priority): tokens for owner, priority, tokens in situation["owed"]}
        for owner, is_own_bound, excess, took_s in situation["refusals"]:
            tokens = tokens_until(owed, owner, excess) if is_own_bound else excess
            errors.append(abs(tokens / rate / took_s - 1))
    assert len(errors) == 200
    assert statistics.median(errors) <= 0.25
