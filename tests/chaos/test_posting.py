"""Webhooks go on after Redis, their sender and the keeper were killed and stopped, in a mix; nothing is lost."""

import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.store.deliveries.sending import LEASE_S
from tests.chaos.posting import Posting, posting
from tests.corelane.store_bench import age
from tests.waiting import eventually

#: What takes longer has not come back by itself, whatever else runs on this machine; seconds.
NEVER_S = 60

pytestmark = pytest.mark.chaos


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Posting]:
    with posting(tmp_path / "parts") as parts:
        parts.posted_after(NEVER_S)
        yield parts


def test_all_events_arrive_though_redis_and_the_sender_are_killed_again_and_again_and_no_keeper_is_there(
    parts: Posting,
) -> None:
    parts.signal("keeper", signal.SIGKILL)
    parts.announce(100)
    parts.signal("sender", signal.SIGSTOP)
    parts.redis.kill()
    parts.redis.start()
    parts.announce(50)
    with parts.redis.client() as raw:
        age(raw, LEASE_S)
    parts.signal("sender", signal.SIGCONT)
    parts.posted_after(NEVER_S)
    parts.announce(100)
    parts.redis.kill()
    parts.signal("sender", signal.SIGKILL)
    parts.launch("sender")
    parts.redis.start()
    parts.posted_after(NEVER_S)
    with parts.redis.client() as raw:
        eventually(lambda: not raw.exists("cl:due"), NEVER_S)
        assert (raw.hgetall("cl:failures"), raw.zcard("cl:circuits")) == ({}, 0)
    assert set(parts.found.ids) == set(parts.ids)
    bodies = defaultdict(set)
    for post in parts.found.posts:
        bodies[post.headers["webhook-id"]].add(post.body)
    assert {len(found) for found in bodies.values()} == {1}
