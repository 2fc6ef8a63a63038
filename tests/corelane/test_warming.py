"""Which batches bring a model to speed before it answers."""

import pytest

from corelane.engine.buckets import Bucket
from corelane.engine.warming import WarmUp, warm_ups

SHORT, LONG = Bucket(length=64, rows=16), Bucket(length=384, rows=3)


def test_each_length_runs_with_one_row_where_more_cost_next_to_nothing_then() -> None:
    found = warm_ups([SHORT, LONG], flexible_rows=True, rows_share_kernels=True)
    assert found == [WarmUp(SHORT, 1), WarmUp(LONG, 1)]


def test_elsewhere_it_runs_full_too() -> None:
    found = warm_ups([SHORT, LONG], flexible_rows=True, rows_share_kernels=False)
    assert found == [WarmUp(SHORT, 1), WarmUp(SHORT, 16), WarmUp(LONG, 1), WarmUp(LONG, 3)]


@pytest.mark.parametrize("rows_share_kernels", [False, True])
def test_rows_that_are_fixed_are_warmed_up_full(rows_share_kernels: bool) -> None:
    found = warm_ups([SHORT, LONG], flexible_rows=False, rows_share_kernels=rows_share_kernels)
    assert found == [WarmUp(SHORT, 16), WarmUp(LONG, 3)]
