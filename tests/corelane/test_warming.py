"""Which batches bring a model to speed before it answers."""

import pytest

from corelane.engine.buckets import Bucket
from corelane.engine.passes import warm_ups


@pytest.mark.parametrize(
    ("flexible_rows", "rows_share_kernels", "rows"),
    [(True, True, [1]), (True, False, [1, 16]), (False, True, [16]), (False, False, [16])],
)
def test_rows_are_run_full_where_they_are_fixed_and_alone_where_more_cost_next_to_nothing_then(
    flexible_rows: bool, rows_share_kernels: bool, rows: list[int]
) -> None:
    bucket = Bucket(length=64, rows=16)
    found = warm_ups([bucket], flexible_rows=flexible_rows, rows_share_kernels=rows_share_kernels)
    assert found == [(bucket, each) for each in rows]


def test_rows_that_take_long_are_not_run_before_they_are_asked_for() -> None:
    ladder = [Bucket(length=512, rows=2), Bucket(length=8192, rows=1)]
    assert warm_ups(ladder, flexible_rows=True, rows_share_kernels=True) == [(ladder[0], 1)]
    assert warm_ups(ladder[1:], flexible_rows=True, rows_share_kernels=True) == [(ladder[1], 1)]
    assert (ladder[1], 1) in warm_ups(ladder, flexible_rows=True, rows_share_kernels=False)
