"""The schedule of faults can be repeated, and leaves no kind out."""

import random
from collections import Counter

import pytest

from tests.chaos.faults import DECK, schedule


@pytest.mark.parametrize("count", [len(DECK), 100, 250])
def test_every_kind_strikes_before_any_strikes_again(count: int) -> None:
    drawn = schedule(random.Random(1), count)
    assert len(drawn) == count
    assert set(drawn[: len(DECK)]) == set(DECK)


def test_seed_repeats_the_schedule() -> None:
    assert schedule(random.Random(7), 200) == schedule(random.Random(7), 200)
    assert schedule(random.Random(7), 200) != schedule(random.Random(8), 200)


def test_long_run_keeps_the_shares_of_the_deck() -> None:
    count = 20 * sum(DECK.values())
    drawn = Counter(schedule(random.Random(1), count))
    for fault, share in DECK.items():
        assert abs(drawn[fault] - 20 * share) <= 1 + share, fault.__name__
