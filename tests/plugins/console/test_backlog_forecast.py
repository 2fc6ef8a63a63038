"""Whether a backlog drains: the sign and the time, over many courses of it."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.domain.durations import duration
from corelane.domain.overview import Sign
from corelane.plugins.console.backlog_forecast import (
    KEEPS_UP_S,
    MARGIN,
    Backlog,
    BacklogForecast,
    BacklogSample,
    BacklogWatch,
    forecast_backlog,
    rates,
)

ITEM_TOKENS = 100


def run(
    arrives: Callable[[int], int], speed: float, seconds: int, start: int = 0
) -> tuple[list[BacklogSample], list[BacklogForecast]]:
    """Return the course of a backlog that cores of this speed answer, and the forecast at each second."""
    samples, forecasts, tokens = [BacklogSample(0, start)], [], float(start)
    for second in range(1, seconds + 1):
        tokens += arrives(second)
        answered = min(tokens, speed)
        tokens -= answered
        samples.append(BacklogSample(second, round(tokens), round(answered)))
        now = Backlog(-(-round(tokens) // ITEM_TOKENS), round(tokens), speed, is_working=answered > 0)
        forecasts.append(forecast_backlog(now, samples[-60:]))
    return samples, forecasts


def test_nothing_open_is_idle() -> None:
    found = forecast_backlog(Backlog(0, 0, 1000), [BacklogSample(1, 0)])
    assert (found.sign, found.text, found.clear_in_s) == (Sign.IDLE, "nothing waits", 0)


def test_backlog_that_nothing_is_added_to_is_clear_when_the_cores_are_through() -> None:
    _, found = run(lambda _: 0, 1000, 60, start=1_000_000)
    assert {each.sign for each in found} == {Sign.DRAINING}
    assert found[-1].clear_in_s == pytest.approx(940, rel=0.01)
    assert found[-1].text == "9,400 waiting, clear in 16 min"


def test_one_large_job_is_no_rate_at_which_work_arrives() -> None:
    _, found = run(lambda second: 10_000_000 if second == 20 else 100, 1000, 60)
    assert {each.sign for each in found[20:]} == {Sign.DRAINING}
    assert found[-1].clear_in_s == pytest.approx(10_000_000 / 900, rel=0.02)


def test_one_canceled_job_is_no_rate_at_which_work_goes() -> None:
    _, found = run(lambda second: -500_000 if second == 20 else 2000, 1000, 60, start=1_000_000)
    assert {each.sign for each in found[24:]} == {Sign.GROWING}


def test_more_arrivals_than_answers_will_not_drain() -> None:
    _, found = run(lambda _: 2200, 1000, 60, start=50_000)
    assert {each.sign for each in found[4:]} == {Sign.GROWING}
    assert found[-1].clear_in_s is None
    assert found[-1].text == "1,220 waiting, growing 12/s, will not drain"


def test_jobs_that_come_now_and_then_are_a_rate_together() -> None:
    _, found = run(lambda second: 15_000 if second % 10 == 0 else 0, 1000, 120, start=50_000)
    assert found[-1].sign is Sign.GROWING


def test_service_that_keeps_up_is_clear_at_once_whatever_its_load() -> None:
    for load in (10, 500, 990):
        _, found = run(lambda _, load=load: load, 1000, 60)  # type: ignore[misc]
        assert {each.sign for each in found} <= {Sign.DRAINING, Sign.IDLE}
        assert all(each.clear_in_s is not None and each.clear_in_s <= KEEPS_UP_S for each in found)


def test_no_time_is_given_near_balance() -> None:
    _, found = run(lambda _: 1000, 1000, 60, start=100_000)
    assert (found[-1].sign, found[-1].clear_in_s) == (Sign.GROWING, None)
    assert found[-1].text == "1,000 waiting, as much arrives as is answered, will not drain"


def test_cores_that_are_slower_than_they_said_are_believed_by_what_they_answer() -> None:
    samples = [BacklogSample(at, 1_000_000 - 100 * at, 100) for at in range(61)]
    found = forecast_backlog(Backlog(9940, samples[-1].tokens, 1000, is_working=True), samples)
    assert found.clear_in_s == pytest.approx(9940, rel=0.01)


def test_outage_does_not_count_as_slowness() -> None:
    speeds = [1000] * 10 + [0] * 45 + [1000] * 5
    samples, tokens = [BacklogSample(0, 200_000)], 200_000
    for second, answered in enumerate(speeds, 1):
        tokens -= answered
        samples.append(BacklogSample(second, tokens, answered))
    found = forecast_backlog(Backlog(tokens // ITEM_TOKENS, tokens, 1000, is_working=True), samples[-60:])
    assert found.clear_in_s == pytest.approx(tokens / 1000, rel=0.05)


def test_work_that_no_core_can_take_is_stalled_at_once_and_says_why() -> None:
    now = Backlog(84, 8400, 1000, stuck_tokens=8400, reasons=["no core holds qa@1, and none is about to"])
    found = forecast_backlog(now, [BacklogSample(1, 8400)])
    assert (found.sign, found.clear_in_s) == (Sign.STALLED, None)
    assert found.text == "84 waiting, nothing is answered: no core holds qa@1, and none is about to"


def test_work_that_waits_while_nothing_is_answered_is_stalled_after_a_while() -> None:
    samples = [BacklogSample(at, 8400) for at in range(40)]
    assert forecast_backlog(Backlog(84, 8400, 1000, oldest_s=20), samples).sign is Sign.DRAINING
    assert forecast_backlog(Backlog(84, 8400, 1000, oldest_s=39), samples).sign is Sign.STALLED
    assert forecast_backlog(Backlog(84, 8400, 1000, oldest_s=39, is_working=True), samples).sign is Sign.DRAINING


def test_part_that_is_stuck_does_not_count_for_the_time_and_is_named() -> None:
    now = Backlog(200, 20_000, 1000, stuck_tokens=10_000, is_working=True, reasons=["no core holds qa@2"])
    found = forecast_backlog(now, [BacklogSample(1, 20_000)])
    assert found.clear_in_s == pytest.approx(10)
    assert found.text == "200 waiting, clear in 10 s; some will not go on: no core holds qa@2"


def test_speed_that_nobody_has_measured_gives_no_time() -> None:
    found = forecast_backlog(Backlog(1, 100, 0), [BacklogSample(1, 100)])
    assert (found.sign, found.clear_in_s) == (Sign.DRAINING, None)


SAMPLES = st.lists(
    st.tuples(st.floats(0.5, 30), st.integers(0, 10**9), st.integers(0, 10**7)), min_size=1, max_size=150
).map(lambda steps: [BacklogSample(sum(s[0] for s in steps[:i]), *step[1:]) for i, step in enumerate(steps)])

BACKLOG = st.builds(
    Backlog,
    st.integers(0, 10**7),
    st.integers(0, 10**10),
    st.floats(0, 10**7),
    st.integers(0, 10**10),
    st.booleans(),
    st.floats(0, 10**6),
    st.lists(st.just("a reason"), max_size=2),
)


@example(Backlog(0, 1, 2.2e-311), [BacklogSample(0, 0)])
@given(BACKLOG, SAMPLES)
def test_time_is_given_where_it_drains_and_is_never_absurd(now: Backlog, samples: Sequence[BacklogSample]) -> None:
    found = forecast_backlog(now, samples)
    assert (found.clear_in_s is None) or found.sign in (Sign.IDLE, Sign.DRAINING)
    assert min(found.backlog_s, found.tokens_per_s, found.arriving_tokens_per_s) >= 0
    if found.clear_in_s is not None:
        assert found.backlog_s * 0.99 <= found.clear_in_s <= found.backlog_s / MARGIN * 1.01
    if now.tokens > 0 or now.items > 0:
        assert found.sign is not Sign.IDLE


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**8))
def test_steady_course_is_told_from_its_rates(speed: int, arriving: int, start: int) -> None:
    samples, found = run(lambda _: arriving, speed, 40, start)
    last = found[-1]
    if samples[-1].tokens / speed > 1.1 * KEEPS_UP_S and min(sample.tokens for sample in samples) > 0:
        if arriving > speed * (1 + 2 * MARGIN):
            assert last.sign is Sign.GROWING
        elif arriving < speed * (1 - 2 * MARGIN):
            assert last.sign is Sign.DRAINING
            assert last.clear_in_s == pytest.approx(samples[-1].tokens / (speed - arriving), rel=0.2, abs=1)


def test_rates_need_time() -> None:
    assert rates([]) == (0, 0)
    assert rates([BacklogSample(1, 5), BacklogSample(1, 9, 4)]) == (0, 0)


def test_watch_adds_up_what_was_answered_between_two_looks_and_starts_from_0_after_a_gap() -> None:
    watch, answered = BacklogWatch(), [5, 4, 3, 2, 1]
    watch.look(100, 1000, answered)
    assert list(watch.look(100, 1001, answered)) == [BacklogSample(100, 1000)]
    assert watch.look(103, 900, answered)[-1] == BacklogSample(103, 900, 12)
    assert list(watch.look(120, 800, answered)) == [BacklogSample(120, 800)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.2, "a second"), (3.2, "4 s"), (43, "45 s"), (99.9, "100 s"), (125, "2 min"), (2100, "35 min")),
        *((7800, "2 h 10 min"), (7200, "2 h"), (40_000, "11 h"), (260_000, "3 days")),
    ],
)
def test_times_are_as_coarse_as_they_are_uncertain(seconds: float, words: str) -> None:
    assert duration(seconds) == words
