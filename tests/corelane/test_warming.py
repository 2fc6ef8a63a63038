"""Which passes bring a model to speed before it answers."""

import pytest

from corelane.engine.buckets import Bucket
from corelane.engine.warming import WarmUp, warm_ups

SHORT, LONG = Bucket(64, 16), Bucket(384, 3)


def test_lengths_that_share_a_file_are_run_once_after_the_first() -> None:
    found = warm_ups([(SHORT, "a.pt"), (LONG, "a.pt")], flexible_rows=True, shares_kernels=True)
    assert found == [WarmUp(SHORT, 1, 3), WarmUp(LONG, 1, 1)]


def test_each_file_is_profiled() -> None:
    found = warm_ups([(SHORT, "a.pt"), (LONG, "b.pt")], flexible_rows=True, shares_kernels=True)
    assert found == [WarmUp(SHORT, 1, 3), WarmUp(LONG, 1, 3)]


def test_buckets_that_share_nothing_are_warmed_up_full_and_with_one_row() -> None:
    found = warm_ups([(SHORT, "a.pt"), (LONG, "a.pt")], flexible_rows=True, shares_kernels=False)
    assert found == [WarmUp(SHORT, 1), WarmUp(SHORT, 16), WarmUp(LONG, 1), WarmUp(LONG, 3)]


@pytest.mark.parametrize("shares_kernels", [False, True])
def test_rows_that_are_fixed_are_warmed_up_full(shares_kernels: bool) -> None:
    found = warm_ups([(SHORT, "a.neff"), (LONG, "b.neff")], flexible_rows=False, shares_kernels=shares_kernels)
    assert found == [WarmUp(SHORT, 16), WarmUp(LONG, 3)]
