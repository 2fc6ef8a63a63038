import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.promises import LEAST_S, Speed, forecast, tokens_ahead

OWED = st.dictionaries(
    st.tuples(st.sampled_from(["me", "a", "b", "c"]), st.integers(0, 2)), st.integers(1, 10**9), max_size=12
)


def test_other_owners_count_for_no_more_than_ones_own_share() -> None:
    assert tokens_ahead({("flood", 1): 10**9}, "me", 1, 100) == 100
    assert tokens_ahead({("flood", 1): 10**9, ("me", 1): 1000}, "me", 1, 100) == 1000 + 1100
    assert tokens_ahead({("a", 1): 50, ("b", 1): 70}, "me", 1, 100) == 120


def test_lower_priorities_do_not_count() -> None:
    assert tokens_ahead({("me", 2): 10**9, ("me", 0): 5}, "me", 1, 100) == 5


@given(OWED, st.integers(0, 2), st.integers(1, 10**6))
def test_more_tokens_never_have_less_before_them(owed: dict[tuple[str, int], int], priority: int, tokens: int) -> None:
    assert tokens_ahead(owed, "me", priority, tokens) <= tokens_ahead(owed, "me", priority, tokens + 1)
    assert 0 <= tokens_ahead(owed, "me", priority, tokens) <= sum(owed.values())


def test_forecast_needs_a_measured_speed() -> None:
    assert forecast(10, 10, 1, []) is None


def test_job_of_one_slice_runs_on_one_core_behind_what_all_cores_do() -> None:
    speeds = [Speed(100, 50, 200)] * 2
    found = forecast(1000, 100, 1, speeds)
    assert found is not None
    assert (found.expected_s, found.earliest_s, found.latest_s) == pytest.approx((6, 3, 12))
    wide = forecast(1000, 100, 8, speeds)
    assert wide is not None
    assert wide.expected_s == pytest.approx(5.5)


def test_no_forecast_is_shorter_than_a_trip() -> None:
    found = forecast(0, 1, 1, [Speed(1e9, 1e9, 1e9)])
    assert found is not None
    assert found.earliest_s == LEAST_S


def test_speed_survives_the_store() -> None:
    assert Speed.decode(Speed(1.5, 0.5, 2.5).encode()) == Speed(1.5, 0.5, 2.5)
