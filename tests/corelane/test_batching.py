import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.batching import pack_windows
from corelane.engine.buckets import Bucket, parse_buckets, smallest_fit
from corelane.errors import CompileFailed

LADDER = parse_buckets("16x64,8x128,8x256,4x384")


@given(st.lists(st.integers(1, 384), max_size=200))
def test_every_window_is_packed_once_into_the_shortest_bucket_that_holds_it(lengths: list[int]) -> None:
    packed = pack_windows(lengths, LADDER)
    assert sorted(position for batch in packed for position in batch.windows) == list(range(len(lengths)))
    for batch in packed:
        assert 0 < len(batch.windows) <= batch.bucket.rows
        assert all(smallest_fit(lengths[position], LADDER) == batch.bucket for position in batch.windows)


@given(st.lists(st.integers(1, 384), max_size=200))
def test_no_bucket_has_two_batches_that_are_not_full(lengths: list[int]) -> None:
    packed = pack_windows(lengths, LADDER)
    loose = [batch.bucket for batch in packed if len(batch.windows) < batch.bucket.rows]
    assert len(loose) == len(set(loose))


def test_window_longer_than_every_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="385 tokens fit no bucket"):
        pack_windows([10, 385], LADDER)


def test_ladder_is_read_in_any_order() -> None:
    assert parse_buckets("4x384, 16x64") == (Bucket(64, 16), Bucket(384, 4))


@pytest.mark.parametrize("text", ["", "8", "8x", "x64", "0x64", "8x8", "8x64,4x64", "-1x64", "8x64;4x128", "99999x64"])
def test_bad_ladder_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(CompileFailed):
        parse_buckets(text)
