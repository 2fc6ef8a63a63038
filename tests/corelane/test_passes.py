"""Which windows share a pass, by the times of two machines and of fixed shapes."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, parse_buckets, tallest
from corelane.engine.passes import FIT_AFTER, FORGET_AFTER, PassTable, PassTimes, choose

LADDER = parse_buckets(DEFAULT_BUCKETS)
BY_LENGTH = {bucket.length: bucket for bucket in LADDER}

#: Rows of the columns of the tables.
ROWS = (1, 2, 3, 4, 6, 8)

#: Milliseconds of a pass of the built-in model in bf16 on one core, by length and ROWS: a CPU with AMX, an AMD EPYC
#: without it.
Times = Mapping[int, Sequence[float]]
AMX: Times = {
    64: (4.1, 6.0, 7.6, 9.4, 14.2, 18.1),
    96: (5.4, 8.0, 10.8, 14.7, 20.1, 26.1),
    128: (6.2, 10.0, 14.9, 19.2, 26.9, 36.6),
    192: (8.9, 16.4, 23.4, 30.1),
    256: (12.1, 23.2, 32.7, 42.8),
    384: (20.3, 37.9, 81.9),
}
NO_AMX: Times = {
    64: (9.4, 16.7, 23.6, 31.0, 44.9, 59.4),
    96: (13.3, 24.0, 35.6, 46.1, 68.6, 91.1),
    128: (17.3, 32.5, 47.4, 62.1, 92.0, 122.0),
    160: (21.2, 40.4, 59.4, 79.3, 117.0, 155.3),
    192: (25.3, 48.7, 72.2, 95.6, 143.4),
    224: (31.0, 58.2, 86.2, 114.3),
    256: (36.0, 69.2, 104.1, 137.5),
    288: (41.2, 80.3, 119.6),
    320: (46.5, 91.0, 136.3),
    384: (58.0, 114.4, 170.7),
}


class Core:
    """Measured passes of a core, by a clock that only they move."""

    def __init__(self, *, ragged: bool = True) -> None:
        self.now = 0.0
        self.times = PassTimes(LADDER, flexible_rows=True, ragged=ragged, clock=self.clock, beside_clock=self.clock)

    def clock(self) -> float:
        return self.now

    def run(self, length: int, rows: int, seconds: float, beside_s: float = 0.0) -> None:
        """Run a full pass, after some work beside it."""
        self.now += beside_s
        self.times.begin()
        self.now += seconds
        self.times.end(BY_LENGTH[length], (rows, length), rows * length)

    def read(self, times: Times, beside_s: float = 0.0, count: int = 3) -> PassTable:
        """Run each shape of a table a few times; return what was learnt."""
        for _ in range(count):
            for length, row in times.items():
                for rows, ms in zip(ROWS, row, strict=False):
                    self.run(length, rows, ms / 1000, beside_s)
        return self.times.table()


def choice(first: int, waiting: Mapping[int, int], table: PassTable) -> tuple[list[int], int]:
    """Return the lengths and the rows chosen, where batches may be full."""
    counts = {BY_LENGTH[length]: count for length, count in waiting.items()}
    buckets, rows = choose(BY_LENGTH[first], counts, table, lambda bucket: bucket.rows)
    return [bucket.length for bucket in buckets], rows


def test_neighbours_of_other_lengths_join_where_a_pass_costs_more_than_the_padding() -> None:
    waiting = {128: 1, 160: 2, 256: 1}
    assert choice(160, waiting, Core().read(AMX, 10e-3)) == ([128, 160, 256], 4)
    assert choice(160, waiting, Core().read(AMX)) == ([128, 160], 3)
    assert choice(256, waiting, Core().read(AMX)) == ([256], 1)
    assert choice(128, {128: 1, 256: 1}, Core().read(NO_AMX)) == ([128], 1)


def test_padding_costs_more_where_linear_layers_compute_it_too() -> None:
    assert choice(96, {96: 2, 128: 1}, Core().read(AMX)) == ([96, 128], 3)
    assert choice(96, {96: 2, 128: 1}, Core(ragged=False).read(AMX)) == ([96], 2)


def test_windows_that_fill_a_batch_of_their_own_are_not_joined() -> None:
    assert choice(128, {96: 1, 128: 9, 160: 1}, Core().read(AMX, 10e-3)) == ([128], 8)


@pytest.mark.parametrize(("waiting", "rows"), [(1, 1), (2, 2), (3, 2), (4, 2), (40, 2)])
def test_shape_that_is_slow_by_itself_is_passed_by(waiting: int, rows: int) -> None:
    assert choice(384, {384: waiting}, Core().read(AMX)) == ([384], rows)
    assert choice(384, {384: waiting}, Core().read(NO_AMX)) == ([384], min(waiting, 3))


def test_slow_shape_is_tried_again_after_a_while() -> None:
    core = Core()
    core.read(AMX)
    quick = {length: row[:2] for length, row in AMX.items()}
    table = core.read(quick, count=FORGET_AFTER // sum(map(len, quick.values())) + 1)
    assert choice(384, {384: 3}, table) == ([384], 3)


def test_pass_that_was_held_up_does_not_make_its_shape_slow() -> None:
    core = Core()
    core.read({length: row[:2] for length, row in AMX.items()})
    for ms in (600, 58, 300):
        core.run(384, 3, ms / 1000)
    assert choice(384, {384: 3}, core.read({64: AMX[64]}, count=FIT_AFTER)) == ([384], 3)


def test_passes_that_were_held_up_once_change_nothing() -> None:
    core = Core()
    core.read(AMX)
    core.read({length: [5 * ms for ms in row] for length, row in AMX.items()}, count=1)
    held_up, undisturbed = core.read(AMX, count=2), Core().read(AMX)
    for bucket in LADDER:
        assert held_up.seconds[bucket] == pytest.approx(undisturbed.seconds[bucket], rel=0.01)


def test_warm_up_alone_tells_what_a_pass_costs_beside_its_rows() -> None:
    table = Core().read({length: row[:1] for length, row in AMX.items()})
    for length, row in AMX.items():
        for rows, ms in zip(ROWS, row, strict=False):
            if (rows, length) != (3, 384):
                assert table.seconds[BY_LENGTH[length]][rows - 1] == pytest.approx(ms / 1000, rel=0.25)


def test_before_anything_was_measured_batches_have_one_bucket_and_are_full() -> None:
    table = PassTimes(LADDER, flexible_rows=True, ragged=True).table()
    assert choice(64, {64: 2, 96: 2}, table) == ([64], 2)
    assert choice(64, {64: 20, 96: 2}, table) == ([64], 16)


#: Fixed shapes, and their milliseconds on some device.
SHAPES = {Bucket(128, 1): 1.0, Bucket(128, 8): 4.0, Bucket(192, 5): 3.5, Bucket(256, 1): 1.5, Bucket(256, 4): 4.0}


def measured(shapes: Mapping[Bucket, float], beside_ms: float = 0.0) -> PassTable:
    """Run each shape a few times on a device that takes as long; return what was learnt."""
    now = 0.0
    times = PassTimes(list(shapes), flexible_rows=False, clock=lambda: now, beside_clock=lambda: now)
    for bucket, ms in [*shapes.items()] * 3:
        now += beside_ms / 1000
        times.begin()
        now += ms / 1000
        times.end(bucket, (bucket.rows, bucket.length), bucket.places)
    return times.table()


@pytest.mark.parametrize(
    ("waiting", "taken", "shape"),
    [
        ({128: 1}, ([128], 1), "1x128"),
        ({128: 3}, ([128], 1), "1x128"),
        ({128: 5}, ([128], 5), "5x192"),
        ({128: 6}, ([128], 6), "8x128"),
        ({128: 11}, ([128], 8), "8x128"),
        ({192: 1}, ([192], 1), "1x256"),
        ({128: 3, 192: 2}, ([128, 192], 5), "5x192"),
        ({128: 1, 192: 1}, ([128], 1), "1x128"),
    ],
)
def test_windows_run_in_the_fixed_shapes_that_take_least(
    waiting: dict[int, int], taken: tuple[list[int], int], shape: str
) -> None:
    table, ladder = measured(SHAPES), {bucket.length: bucket for bucket in tallest(SHAPES)}
    found = {ladder[length]: count for length, count in waiting.items()}
    buckets, rows = choose(next(iter(found)), found, table, lambda bucket: bucket.rows)
    assert ([bucket.length for bucket in buckets], rows) == taken
    assert str(table.shape(buckets[-1], rows)) == shape


def test_work_beside_each_pass_makes_one_pass_of_several_rows_the_quicker_one() -> None:
    full = Bucket(128, 8)
    assert choose(full, {full: 3}, measured(SHAPES, beside_ms=2.0), lambda bucket: bucket.rows) == ((full,), 3)


def test_fixed_shape_that_was_held_up_is_tried_again_later() -> None:
    now, full = 0.0, Bucket(128, 8)
    times = PassTimes([Bucket(128, 1), full], flexible_rows=False, clock=lambda: now, beside_clock=lambda: now)

    def run(bucket: Bucket, seconds: float, count: int) -> str:
        """Run passes; return the shape that a lone window runs in after them."""
        nonlocal now
        for _ in range(count):
            times.begin()
            now += seconds
            times.end(bucket, (bucket.rows, bucket.length), bucket.places)
        return str(times.table().shape(full, 1))

    assert run(full, 0.004, 3) == "1x128"
    assert (run(Bucket(128, 1), 0.5, 8), run(full, 0.004, FIT_AFTER)) == ("1x128", "8x128")
    assert run(full, 0.004, FORGET_AFTER) == "1x128"


def test_fixed_shapes_that_were_not_measured_take_what_their_size_says() -> None:
    table = PassTimes(list(SHAPES), flexible_rows=False).table()
    assert [str(table.shape(Bucket(128, 8), rows)) for rows in (1, 2, 8)] == ["1x128", "5x192", "8x128"]


def test_clock_that_stands_still_is_no_error() -> None:
    table = Core().read(dict.fromkeys(AMX, (0.0, 0.0)))
    assert choice(64, {64: 2, 96: 2}, table)[1] >= 2


@given(
    st.dictionaries(st.sampled_from(LADDER), st.integers(1, 20), min_size=1),
    st.data(),
    st.lists(st.floats(0, 1e-2), min_size=3, max_size=3),
)
def test_pass_has_a_window_that_begins_it_and_neighbours_that_all_fit(
    waiting: dict[Bucket, int], data: st.DataObject, costs: list[float]
) -> None:
    fixed, token, place = costs
    table = PassTable(
        {b: [fixed + n * b.length * (token + place * b.length) for n in range(1, b.rows + 1)] for b in LADDER}, token
    )
    first, most = data.draw(st.sampled_from(sorted(waiting))), data.draw(st.integers(1, 16))
    buckets, rows = choose(first, waiting, table, lambda bucket: min(bucket.rows, most))
    assert first in buckets
    assert list(buckets) == [each for each in sorted(waiting) if buckets[0] <= each <= buckets[-1]]
    assert 1 <= rows <= min(buckets[-1].rows, most, sum(waiting[each] for each in buckets))
    assert len(buckets) == 1 or rows == sum(waiting[each] for each in buckets)
