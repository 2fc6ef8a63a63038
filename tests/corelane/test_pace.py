from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.buckets import Bucket
from corelane.engine.passes import ALONE_AFTER_S, RECENT_BATCHES, Pace

BUCKET = Bucket(length=128, rows=8)


def shared_pace(target_s: float) -> Pace:
    """Return the pace of a core that two owners share."""
    pace = Pace(target_s, lambda: 1000.0)
    pace.heard("a")
    pace.heard("b")
    return pace


def test_owner_alone_gets_longer_batches_once_the_others_are_gone() -> None:
    now = 1000.0
    pace = Pace(0.04, lambda: now)
    pace.note(BUCKET, rows=8, seconds=0.08)
    sizes = [pace.rows(BUCKET)]
    for owner in "aab":
        pace.heard(owner)
        sizes.append(pace.rows(BUCKET))
    for seconds in (ALONE_AFTER_S, 0.1):
        now += seconds
        sizes.append(pace.rows(BUCKET))
    assert sizes == [6, 6, 6, 4, 4, 6]


def test_larger_job_gets_no_longer_batches_while_questions_come() -> None:
    now = 1000.0
    pace = Pace(0.04, lambda: now)
    pace.note(BUCKET, rows=8, seconds=0.08)
    pace.heard("a")
    sizes = [pace.rows(BUCKET)]
    pace.heard("b", is_little=True)
    sizes.append(pace.rows(BUCKET))
    now += ALONE_AFTER_S
    sizes.append(pace.rows(BUCKET))
    assert sizes == [6, 4, 6]


def test_questions_among_themselves_get_long_batches() -> None:
    now = 1000.0
    pace = Pace(0.04, lambda: now)
    pace.note(BUCKET, rows=8, seconds=0.08)
    for asker in "abc":
        pace.heard(asker, is_little=True)
        assert pace.rows(BUCKET) == 8
    slow = Bucket(length=384, rows=8)
    pace.note(slow, rows=1, seconds=0.036)
    assert pace.rows(slow) == 2
    pace.heard("d")
    assert (pace.rows(BUCKET), pace.rows(slow)) == (4, 1)


def test_rows_that_take_long_get_no_longer_batches() -> None:
    pace = Pace(0.04)
    pace.note(BUCKET, rows=8, seconds=0.2)
    assert pace.rows(BUCKET) == 1


def test_bucket_that_was_never_measured_is_not_limited() -> None:
    assert shared_pace(0.001).rows(BUCKET) == 8


def test_as_many_rows_as_are_done_in_time() -> None:
    pace = shared_pace(0.05)
    pace.note(BUCKET, rows=8, seconds=0.08)
    assert pace.rows(BUCKET) == 5


def test_one_row_runs_however_long_it_takes() -> None:
    pace = shared_pace(0.05)
    pace.note(BUCKET, rows=1, seconds=60)
    assert pace.rows(BUCKET) == 1


def test_without_a_target_batches_are_full() -> None:
    pace = shared_pace(float("inf"))
    pace.note(BUCKET, rows=8, seconds=60)
    assert pace.rows(BUCKET) == 8


def test_clock_that_stood_still_limits_nothing() -> None:
    pace = shared_pace(0.05)
    pace.note(BUCKET, rows=8, seconds=0)
    assert pace.rows(BUCKET) == 8


def test_batch_that_was_held_up_changes_nothing() -> None:
    pace = shared_pace(0.08)
    for seconds in (0.1, 3, 0.1, 5):
        pace.note(BUCKET, rows=8, seconds=seconds)
        assert pace.rows(BUCKET) == 6


def test_core_that_slows_down_gets_smaller_batches_and_larger_ones_when_it_recovers() -> None:
    pace = shared_pace(0.08)
    sizes = []
    for seconds in [0.08] + [0.4] * RECENT_BATCHES + [0.08]:
        pace.note(BUCKET, rows=8, seconds=seconds)
        sizes.append(pace.rows(BUCKET))
    assert sizes == [8] * RECENT_BATCHES + [1, 8]


def test_buckets_are_measured_apart() -> None:
    pace = shared_pace(0.05)
    pace.note(BUCKET, rows=8, seconds=0.8)
    assert pace.rows(Bucket(length=64, rows=16)) == 16


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1e6)), max_size=20), st.floats(1e-6, 1e6))
def test_rows_are_always_some_and_never_more_than_the_bucket_has(
    measured: list[tuple[int, float]], target_s: float
) -> None:
    pace = shared_pace(target_s)
    for rows, seconds in measured:
        pace.note(BUCKET, rows, seconds)
        assert 1 <= pace.rows(BUCKET) <= BUCKET.rows
