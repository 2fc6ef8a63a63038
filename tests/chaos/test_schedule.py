"""The schedule of faults can be repeated, and leaves no kind out."""

import random
from collections import Counter

import pytest

from tests.chaos.faults import DECK, PROXIED, Fault, deck, schedule


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("count", [len(DECK) + len(PROXIED), 100, 250])
def test_every_kind_strikes_before_any_strikes_again(count: int, proxied: bool) -> None:
    drawn, kinds = schedule(random.Random(1), count, proxied=proxied), deck(proxied=proxied)
    assert len(drawn) == count
    assert set(drawn[: len(kinds)]) == set(kinds)


def test_seed_repeats_the_schedule() -> None:
    assert schedule(random.Random(7), 200) == schedule(random.Random(7), 200)
    assert schedule(random.Random(7), 200) != schedule(random.Random(8), 200)


def test_long_run_keeps_the_shares_of_the_deck() -> None:
    count = 20 * sum(DECK.values())
    drawn = Counter(schedule(random.Random(1), count))
    shares: dict[Fault, int] = DECK
    for fault, share in shares.items():
        assert abs(drawn[fault] - 20 * share) <= 1 + share, fault.__name__
