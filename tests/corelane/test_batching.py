import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.batching import OLDEST_TURN, Waiting, next_batch
from corelane.engine.buckets import Bucket, parse_buckets, smallest_fit
from corelane.engine.windows import Window
from corelane.errors import CompileFailed

LADDER = parse_buckets("16x64,8x128,8x256,4x384")

ITEMS = st.lists(st.lists(st.integers(1, 384), min_size=1, max_size=40), max_size=20)


def waiting_items(lengths: list[list[int]]) -> list[Waiting]:
    return [
        Waiting.of(arrival, [Window(n, n + 1, length) for n, length in enumerate(item)], LADDER)
        for arrival, item in enumerate(lengths)
    ]


@given(ITEMS)
def test_every_window_runs_once_in_the_shortest_bucket_that_holds_it(lengths: list[list[int]]) -> None:
    items = waiting_items(lengths)
    ran = []
    turn = 0
    while (chosen := next_batch(items, turn)) is not None:
        bucket, rows = chosen
        assert 0 < len(rows) <= bucket.rows
        assert all(smallest_fit(window.length, LADDER) == bucket for _, window in rows)
        ran += [(item.arrival, window.start) for item, window in rows]
        turn += 1
    assert sorted(ran) == [(arrival, n) for arrival, item in enumerate(lengths) for n in range(len(item))]
    assert all(item.left == 0 and not item.by_bucket for item in items)


@given(ITEMS)
def test_batch_is_full_unless_its_bucket_has_no_more(lengths: list[list[int]]) -> None:
    items = waiting_items(lengths)
    turn = 0
    while (chosen := next_batch(items, turn)) is not None:
        bucket, rows = chosen
        assert len(rows) == bucket.rows or not any(bucket in item.by_bucket for item in items)
        turn += 1


def test_one_line_question_goes_before_a_document_that_came_first() -> None:
    document, question = waiting_items([[384] * 400, [40]])
    chosen = next_batch([document, question], turn=1)
    assert chosen is not None
    assert [item.arrival for item, _ in chosen[1]] == [1]


def test_document_shares_the_rows_that_a_short_question_leaves() -> None:
    document, question = waiting_items([[384] * 400, [380]])
    chosen = next_batch([document, question], turn=1)
    assert chosen is not None
    assert [item.arrival for item, _ in chosen[1]] == [1, 0, 0, 0]


def test_document_is_not_starved_by_an_endless_stream_of_questions() -> None:
    [document] = waiting_items([[384] * 8])
    items = [document]
    for turn in range(1, 2 * OLDEST_TURN + 1):
        items += [Waiting.of(100 + turn * 20 + n, [Window(0, 1, 40)], LADDER) for n in range(16)]
        next_batch(items, turn)
    assert document.left == 0


def test_nothing_waiting_is_no_batch() -> None:
    assert next_batch([], 0) is None


def test_window_longer_than_every_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="385 tokens fit no bucket"):
        Waiting.of(0, [Window(0, 1, 385)], LADDER)


def test_ladder_is_read_in_any_order() -> None:
    assert parse_buckets("4x384, 16x64") == (Bucket(64, 16), Bucket(384, 4))


@pytest.mark.parametrize("text", ["", "8", "8x", "x64", "0x64", "8x8", "8x64,4x64", "-1x64", "8x64;4x128", "99999x64"])
def test_bad_ladder_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(CompileFailed):
        parse_buckets(text)
