from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.buckets import Bucket
from corelane.engine.passes import ALONE_AFTER_S, Pace, PassTable

BUCKET = Bucket(length=128, rows=8)

LONG = Bucket(length=384, rows=8)

#: A row of the short bucket takes 10 ms, one of the long 36 ms.
TABLE = PassTable({BUCKET: [0.01 * rows for rows in range(1, 9)], LONG: [0.036 * rows for rows in range(1, 9)]})


def test_owner_alone_gets_longer_batches_once_the_others_are_gone() -> None:
    now = 1000.0
    pace = Pace(0.04, lambda: now)
    sizes = [pace.rows(BUCKET, TABLE)]
    for owner in "aab":
        pace.heard(owner)
        sizes.append(pace.rows(BUCKET, TABLE))
    for seconds in (ALONE_AFTER_S, 0.1):
        now += seconds
        sizes.append(pace.rows(BUCKET, TABLE))
    assert sizes == [6, 6, 6, 4, 4, 6]
    assert pace.rows(LONG, TABLE) == 1


def test_larger_job_gets_no_longer_batches_while_questions_come() -> None:
    now = 1000.0
    pace = Pace(0.04, lambda: now)
    pace.heard("a")
    sizes = [pace.rows(BUCKET, TABLE)]
    pace.heard("b", is_little=True)
    sizes.append(pace.rows(BUCKET, TABLE))
    now += ALONE_AFTER_S
    sizes.append(pace.rows(BUCKET, TABLE))
    assert sizes == [6, 4, 6]


def test_questions_among_themselves_get_long_batches() -> None:
    pace = Pace(0.04, lambda: 1000.0)
    for asker in "abc":
        pace.heard(asker, is_little=True)
    assert (pace.rows(BUCKET, TABLE), pace.rows(LONG, TABLE)) == (8, 2)
    pace.heard("d")
    assert (pace.rows(BUCKET, TABLE), pace.rows(LONG, TABLE)) == (4, 1)


@given(st.lists(st.floats(0, 1e6), min_size=8, max_size=8), st.floats(1e-6) | st.just(float("inf")))
def test_rows_are_always_some_and_done_in_time_if_one_is(seconds: list[float], target_s: float) -> None:
    pace = Pace(target_s, lambda: 1000.0)
    for asker in "ab":
        pace.heard(asker)
    rows = pace.rows(BUCKET, PassTable({BUCKET: seconds}))
    assert rows == 1 or seconds[rows - 1] <= target_s
    assert all(took > target_s for took in seconds[rows:])
