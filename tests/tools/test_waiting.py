"""The one way in which tests wait."""

import asyncio
import itertools

import pytest
import redis

from tests.tools.waiting import eventually, eventually_async


def test_what_was_waited_for_is_returned_though_it_failed_at_first() -> None:
    looks = itertools.count()

    def look() -> int:
        number = next(looks)
        if number == 0:
            raise redis.ConnectionError("down")
        assert number > 1
        return number

    assert eventually(look) == 2


def test_giving_up_says_why_and_what_was_seen_last() -> None:
    with pytest.raises(TimeoutError, match=r"not within 0 s: the door opens; last seen: \[\]"):
        eventually(list, 0, "the door opens")
    with pytest.raises(TimeoutError, match=r"1 > 2.*last seen: False"):
        asyncio.run(eventually_async(lambda: 1 > 2, 0))
