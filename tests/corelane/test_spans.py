import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corelane.tasks.question_answering.engine.spans import find_spans, scores

LENGTH = 24


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    logits = st.lists(st.floats(-20, 20, width=32), min_size=LENGTH, max_size=LENGTH)
    start, end = draw(logits), draw(logits)
    first = draw(st.integers(1, LENGTH - 1))
    last = draw(st.integers(first, LENGTH))
    return (
        np.array([start], dtype=np.float32),
        np.array([end], dtype=np.float32),
        first,
        last,
        draw(st.integers(1, LENGTH + 5)),
    )


def brute_force(
    start: np.ndarray, end: np.ndarray, first: int, last: int, longest: int
) -> list[tuple[float, int, int]]:
    null = float(start[0, 0]) + float(end[0, 0])
    found = [
        (float(start[0, s]) + float(end[0, e]) - null, s, e)
        for s in range(first, last)
        for e in range(s, min(s + longest, last))
    ]
    return sorted(found, key=lambda span: -span[0])


@given(rows())
def test_vectorised_search_finds_what_trying_every_span_finds(
    case: tuple[np.ndarray, np.ndarray, int, int, int],
) -> None:
    start, end, first, last, longest = case
    [found] = find_spans(start, end, np.array([first]), np.array([last]), max_answer_tokens=longest, keep=5)
    expected = brute_force(start, end, first, last, longest)
    np.testing.assert_allclose(found.margins, [margin for margin, _, _ in expected[:5]], atol=1e-3)
    for s, e in zip(found.starts, found.ends, strict=True):
        assert first <= s <= e < last
        assert e - s < longest
    if expected:
        mass = math.log(sum(math.exp(margin - expected[0][0]) for margin, _, _ in expected)) + expected[0][0]
        assert abs(found.mass - mass) < 1e-2
    else:
        assert found.mass == float("-inf")


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_among_equal_spans_the_earlier_wins(longest: int, keep: int, seed: int) -> None:
    start, end = np.random.default_rng(seed).integers(-2, 3, size=(2, 1, LENGTH)).astype(np.float32)
    [found] = find_spans(start, end, np.array([2]), np.array([LENGTH]), max_answer_tokens=longest, keep=keep)
    expected = sorted(brute_force(start, end, 2, LENGTH, longest), key=lambda span: (-span[0], span[1], span[2]))
    assert list(zip(found.margins, found.starts, found.ends, strict=True)) == expected[:keep]


def test_spans_far_below_the_best_start_and_end_have_the_mass_of_the_best() -> None:
    start, end = np.zeros((2, 1, LENGTH), dtype=np.float32)
    start[0, 20] = end[0, 3] = 900
    [found] = find_spans(start, end, np.array([1]), np.array([LENGTH]), max_answer_tokens=4, keep=1)
    assert found.margins[0] == 900 <= found.mass < 902


def test_rows_do_not_see_each_other() -> None:
    rng = np.random.default_rng(3)
    start, end = rng.normal(size=(2, 6, LENGTH)).astype(np.float32)
    first, last = np.full(6, 4), np.full(6, 20)
    together = find_spans(start, end, first, last, max_answer_tokens=6, keep=4)
    for row in range(6):
        one = slice(row, row + 1)
        [alone] = find_spans(start[one], end[one], first[one], last[one], max_answer_tokens=6, keep=4)
        assert alone.starts.tolist() == together[row].starts.tolist()
        assert alone.margins.tolist() == together[row].margins.tolist()


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8))
def test_scores_are_shares_that_favour_the_better(margins: list[float]) -> None:
    ordered = sorted(margins, reverse=True)
    shares, null = scores(ordered, ordered)
    assert all(0 <= share <= 1 for share in [*shares, null])
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) + null - 1) < 1e-6


def test_item_without_any_span_believes_in_no_answer() -> None:
    assert scores([], [float("-inf")]) == ([], 1.0)
