"""From a calibrating load to a profile: a made-up service with known times is found again."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from corelane.domain.timing import JobTiming
from corelane.engine.buckets import Bucket, parse_buckets
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.measure import SeenPhase, SeenRequest, fit
from corelane.plugins.lab.planning.profile import Profile, load_profile
from corelane.plugins.lab.split import Snapshot

LADDER = ["8x64", "4x128", "3x256"]
VERSION = "v@1"

#: The truth: a batch takes 2 ms and 50 µs a token.
BASE_S, TOKEN_S = 0.002, 0.00005


def batch_s(bucket: Bucket, rows: float) -> float:
    return BASE_S + TOKEN_S * bucket.length * rows


def samples(points: Mapping[str, tuple[int, int]], stretch: float = 1.0, height: int | None = None) -> Snapshot:
    """Return the metrics after so many batches of so many windows each."""
    batches, windows, seconds, padding = {}, {}, {}, {}
    tokens = 0.0
    for shape, (count, rows) in points.items():
        [bucket] = parse_buckets(shape)
        labels = (("version", VERSION), ("shape", shape))
        batches[labels], windows[labels] = float(count), float(count * rows)
        seconds[labels] = stretch * count * batch_s(bucket, height or rows)
        tokens += 0.9 * bucket.length * count * rows
        padding[labels] = bucket.length * count * (height or rows) - 0.9 * bucket.length * count * rows
    named = (("version", VERSION),)
    counted: dict[str, Any] = {
        "corelane_batches_total": batches,
        "corelane_batch_windows_total": windows,
        "corelane_batch_seconds_total": seconds,
        "corelane_padding_tokens_total": padding,
        "corelane_tokens_total": {named: tokens},
        "corelane_tokenize_seconds_sum": {(): tokens * 1e-6},
        "corelane_merge_seconds_sum": {(): sum(windows.values()) * 1e-4},
    }
    return Snapshot(0.0, counted)


NOTHING = Snapshot(0.0, {})


def timing(compute_s: float, wait_s: float = 0.001, commit_s: float = 0.0005, cores: int = 1) -> JobTiming:
    parts = {"submit_s": 0.002, "wait_s": wait_s, "tokenize_s": 0.0002, "compute_s": compute_s, "merge_s": 0.0001}
    wall_s = sum(parts.values()) + commit_s
    return JobTiming(
        wall_s=wall_s, **parts, commit_s=commit_s, other_s=0, deliver_s=None, cores=cores, core_s=compute_s
    )


def asked(count: int, items: int = 1, outside_s: float = 0.003) -> Sequence[SeenRequest]:
    dice = random.Random(1)
    found = []
    for _ in range(count):
        part = timing(batch_s(Bucket(64, 8), items), commit_s=0.0005 + 0.0001 * (items - 1))
        found.append(SeenRequest(part.wall_s + outside_s * dice.uniform(0.5, 1.5), items, 50 * items, part))
    return found


def make(stretch: float = 1.0, **changes: object) -> Profile:
    lone = SeenPhase(asked(90), 18.0, 4500, NOTHING, samples({"8x64": (60, 1), "4x128": (30, 1)}))
    packed = SeenPhase(asked(20, 6), 4.0, 6000, NOTHING, samples({"8x64": (20, 6), "4x128": (10, 3), "3x256": (2, 2)}))
    busy = SeenPhase(
        asked(300, outside_s=0.009), 60.0, 15_000, NOTHING, samples({"8x64": (100, 2), "4x128": (30, 2)}, stretch)
    )
    return fit({"version": VERSION, "cpus": 2} | changes, LADDER, 2, lone, packed, busy)


def test_the_times_of_batches_are_found_again() -> None:
    profile = make()
    assert profile.flexible_rows
    for bucket, rows in ((Bucket(64, 8), 5), (Bucket(128, 4), 2), (Bucket(256, 3), 3)):
        assert profile.batch_s(bucket.length, rows) == pytest.approx(batch_s(bucket, rows))


def test_trips_and_overheads_are_found_again() -> None:
    profile = make()
    assert profile.wake_s == pytest.approx(0.001)
    assert profile.exchange_s == pytest.approx(0.0005)
    assert profile.exchange_item_s == pytest.approx(0.0001)
    assert profile.tokenize_token_s == pytest.approx(1e-6)
    assert profile.merge_row_s == pytest.approx(1e-4)
    assert profile.overhead.front_s == pytest.approx(0.002)
    assert profile.overhead.reply_s == pytest.approx(0.003, rel=0.1)
    assert sum(profile.overhead.spread) / len(profile.overhead.spread) == pytest.approx(1)
    assert profile.noise == pytest.approx(0)


def test_what_all_cores_take_from_each_other_is_what_requests_cost_the_host() -> None:
    profile = make(stretch=1.25)
    assert profile.contention.stretch == pytest.approx(1.25)
    assert profile.contention.overhead.reply_s == pytest.approx(0.009, rel=0.1)
    # 60 requests a second left 1.6 of 2 CPUs to the cores.
    assert profile.request_cpu_s == pytest.approx(0.4 / 60)
    assert profile.stretch(2, 60) == pytest.approx(1.25)
    assert profile.stretch(1, 60) == profile.stretch(2, 0) == 1
    assert profile.stretch(2, 30) == pytest.approx(2 / 1.8)


def test_rows_of_padding_show_that_batches_are_always_full() -> None:
    one, three = (SeenPhase(asked(9), 1.8, 450, NOTHING, samples({"4x128": (30, rows)}, height=4)) for rows in (1, 3))
    profile = fit({"version": VERSION}, ["4x128"], 1, one, three, one)
    assert not profile.flexible_rows
    assert profile.batch_s(128, 1) == pytest.approx(batch_s(Bucket(128, 4), 4))


def test_shapes_of_one_row_are_fixed_shapes_of_their_own() -> None:
    lone, three = (
        SeenPhase(asked(9), 1.8, 450, NOTHING, samples({shape: (30, rows)}, height=height))
        for shape, rows, height in (("1x128", 1, 1), ("4x128", 3, 4))
    )
    profile = fit({"version": VERSION}, ["1x128", "4x128", "1x256", "2x256"], 1, lone, three, lone)
    full = Bucket(128, 4)
    assert not profile.flexible_rows
    assert profile.batch_s(128, 1) == pytest.approx(batch_s(Bucket(128, 1), 1))
    assert profile.batch_s(128, 4) == pytest.approx(batch_s(full, 4))
    assert profile.batch_s(256, 2) == pytest.approx(profile.batch_s(128, 4))
    assert profile.batch_s(256, 1) == pytest.approx(2 * profile.batch_s(128, 1)), "as the nearest by its size"


def test_a_service_that_counts_no_seconds_is_refused() -> None:
    nothing = SeenPhase(asked(3), 0.6, 150, NOTHING, NOTHING)
    with pytest.raises(InvalidInput, match="metrics did not move"):
        fit({"version": VERSION}, LADDER, 1, nothing, nothing, nothing)


def test_a_profile_is_saved_and_read_again(tmp_path: Path) -> None:
    profile = make(instance="inf2.xlarge")
    (tmp_path / "core.json").write_text(profile.model_dump_json(by_alias=True))
    assert load_profile(tmp_path / "core.json") == profile
    (tmp_path / "other.json").write_text('{"schema": "corelane.bench/1"}')
    with pytest.raises(InvalidInput, match="no profile of a core: schema"):
        load_profile(tmp_path / "other.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_profile(tmp_path / "absent.json")
