"""What was done of late, told from sums of several times."""

import pytest

from corelane.domain.overview import ModelOverview
from corelane.metrics.series import Series, parse
from corelane.plugins.console.points import Point, make_point
from corelane.plugins.console.recent import (
    KEPT_APART_MS,
    NOW_MS,
    WINDOW_MS,
    Recent,
    count_done,
    models_of,
    promises_of,
    stretches,
)

V = "tiny@1"


def sums(second: int) -> Series:
    """Return the sums of a service that answers ten items a second, one of them in vain, and twelve more come."""
    passes = 2 * second
    return parse(
        {
            f"corelane_items_submitted_total|{V}": 12.0 * second,
            f"corelane_items_total|{V}|succeeded": 9.0 * second,
            f"corelane_items_total|{V}|failed": 1.0 * second,
            f"corelane_tokens_total|{V}": 300.0 * second,
            f"corelane_padding_tokens_total|{V}|8x128": 100.0 * second,
            f"corelane_compute_seconds|{V}|#0.25": passes,
            f"corelane_compute_seconds|{V}|#sum": 0.2 * passes,
            "corelane_jobs_ended_total|succeeded": 2.0 * second,
        }
    )


def rates_of(recent: Recent, version: str = V, cores: int = 2) -> ModelOverview:
    [model] = models_of([version], recent.rise(), cores)
    return model


def test_rates_of_a_version_are_of_the_last_minute() -> None:
    recent = Recent()
    recent.add(0, sums(0))
    assert rates_of(recent).items_per_s == 0
    for second in range(5, 200, 5):
        recent.add(1000 * second, sums(second))
    rise, now = recent.rise(), recent.rise(NOW_MS)
    assert rise is not None
    assert WINDOW_MS / 1000 <= rise.seconds <= (WINDOW_MS + KEPT_APART_MS) / 1000
    assert now is not None
    assert now.seconds == 10
    model = rates_of(recent)
    assert (model.items_per_s, model.arriving_items_per_s, model.tokens_per_s) == (10, 12, 300)
    assert (model.error_rate, model.padding, model.core_share) == (0.1, 0.25, 0.2)
    assert model.compute_mean_s == pytest.approx(0.2)
    assert model.compute_p95_s is not None
    assert 0.1 < model.compute_p95_s <= 0.25


def test_version_that_does_nothing_has_no_figures() -> None:
    recent = Recent()
    recent.add(0, sums(0))
    recent.add(5000, sums(5))
    model = rates_of(recent, "idle@1", 0)
    assert (model.items_per_s, model.compute_mean_s, model.error_rate, model.core_share) == (0, None, None, None)


def test_sums_that_began_again_and_a_clock_set_back_give_no_negative_rates() -> None:
    recent = Recent()
    recent.add(0, sums(100))
    recent.add(5000, sums(1))
    assert rates_of(recent).items_per_s == 2
    recent.add(1000, sums(2))
    assert rates_of(recent).items_per_s == 20


def points(*times_s: int) -> list[Point]:
    return [Point(at_ms=1000 * at, items_s=10, jobs_s=2, failed_s=1) for at in times_s]


def done(history: list[Point], now_s: int, before_s: int | None, since_s: int) -> int:
    """Return the items done since a time, where the last point was taken at ``before_s``."""
    before = parse({}) if before_s is None else sums(before_s)
    before_ms = None if before_s is None else 1000 * before_s
    return count_done(stretches(history, 1000 * now_s, sums(now_s), before_ms, before), 1000 * since_s).items


def test_what_was_done_is_counted_from_the_points_and_what_came_since() -> None:
    history = points(10, 20, 30, 40)
    assert done(history, 43, 40, since_s=-100) == 430
    assert done(history, 43, 40, since_s=15) == 280
    assert done(history, 43, 40, since_s=41) == 20
    found = count_done(stretches(history, 43_000, sums(43), 40_000, sums(40)), 30_000)
    assert (found.jobs, found.failed) == (20 + 6, 10 + 3)


def test_point_after_a_gap_stands_for_the_whole_gap() -> None:
    assert done(points(10, 110), 110, 110, since_s=0) == 1100


def test_after_the_clock_was_set_back_nothing_counts_twice_or_as_done_in_a_moment() -> None:
    assert done(points(10, 20, 3000, 3010), 30, 3010, since_s=0) == 200
    assert make_point(1000, 5000, sums(0), sums(60)).items_s <= 600


def test_without_a_history_everything_was_done_just_now() -> None:
    assert done([], 3, None, since_s=-60) == 30


def test_share_of_promises_that_were_kept() -> None:
    assert promises_of(parse({})).hit_rate is None
    counts = {
        f"corelane_promises_total|{name}": count for name, count in (("kept", 8.0), ("early", 1.0), ("late", 1.0))
    }
    assert promises_of(parse(counts)).hit_rate == 0.8
