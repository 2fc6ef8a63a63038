"""Bars stand one after the other and fill the whole."""

import pytest

from corelane.plugins.console.pages.waterfall import FULL, lay_out

TIMING = {"submit_s": 0.002, "wait_s": 0.01, "compute_s": 0.02, "merge_s": 0.0, "other_s": 0.0, "wall_s": 0.032}


def test_bars_follow_each_other_and_fill_the_whole() -> None:
    bars = lay_out(TIMING, 0.032)
    assert [bar.name for bar in bars] == ["submit", "wait", "compute", "merge", "other"]
    assert sum(bar.share for bar in bars) == pytest.approx(1)
    assert bars[1].x == pytest.approx(bars[0].width, abs=0.2)
    assert all(bar.x >= 0 and bar.x + bar.width <= FULL for bar in bars)


def test_parts_larger_than_the_whole_still_fit() -> None:
    bars = lay_out({"wait_s": 3.0, "compute_s": 1.0, "commit_s": None}, 2.0)
    assert bars[-1].x + bars[-1].width <= FULL


def test_job_without_time_has_bars_without_width() -> None:
    assert all(bar.width == 0 for bar in lay_out({"wait_s": 0.0}, 0.0))
