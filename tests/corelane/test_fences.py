"""Fences only grow: over restarts, promotions and clocks that go back; as text every version writes them in full."""

import time

import pytest
import redis

from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link

#: What Redis of an earlier version writes of a number with all its digits: 14.
FULL = 10**14


@pytest.fixture
def link(settings: Settings) -> Link:
    return Link(settings.redis_url)


def take(link: Link, key: str) -> int:
    return int(link.run("lease", key=key, holder="one", ttl_ms=60_000))


def promote(raw: redis.Redis) -> None:
    """Have the server be another one than the fences are of: its own memory of it is gone with the functions."""
    raw.set(keys.FENCED_LIFE, "f" * 40)
    raw.execute_command("FUNCTION", "FLUSH")


def test_a_new_primary_begins_at_the_time_far_beyond_what_it_has_not_seen(raw: redis.Redis, link: Link) -> None:
    promote(raw)  # Tests before this one may have left fences in the server's own memory.
    raw.set(keys.FENCE, 12_345)
    first = take(link, "cl:test:a")
    assert first // 10_000 == pytest.approx(time.time(), abs=60)
    assert take(link, "cl:test:b") == first + 1
    promote(raw)
    raw.set(keys.FENCE, first - 1_000_000)
    assert first < take(link, "cl:test:c") < FULL


def test_a_new_primary_whose_clock_is_behind_goes_on_from_what_it_saw(raw: redis.Redis, link: Link) -> None:
    ahead = take(link, "cl:test:a") + 36_000_000  # An hour.
    raw.set(keys.FENCE, ahead)
    promote(raw)
    second = take(link, "cl:test:b")
    assert ahead + 10_000_000 <= second < FULL
    assert take(link, "cl:test:c") == second + 1


def test_the_fence_of_a_lease_never_goes_back(raw: redis.Redis, link: Link) -> None:
    raw.hset(keys.FENCES, "cl:test:a", 5 * 10**13)
    assert take(link, "cl:test:a") == 5 * 10**13 + 1
    raw.delete("cl:test:a")
    assert take(link, "cl:test:a") == 5 * 10**13 + 2
