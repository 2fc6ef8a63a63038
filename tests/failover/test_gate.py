"""Accepted means replicated, where that is asked for: a write is confirmed once replicas hold it, and by them alone."""

import asyncio
from collections.abc import Iterator

import pytest

from corelane.errors import NotReplicated
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.link.replicas import ReplicaGate
from tests.tools.servers import RedisNode
from tests.tools.waiting import eventually


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisNode, RedisNode]]:
    folder = tmp_path_factory.mktemp("pair")
    primary, replica = RedisNode(folder / "primary"), RedisNode(folder / "replica")
    try:
        primary.start()
        replica.start("--replicaof", f"127.0.0.1 {primary.port}")
        eventually(lambda: replica.replication()["master_link_status"] == "up")
        yield primary, replica
    finally:
        replica.stop()
        primary.stop()


def confirm(url: str, *places: tuple[str, str], replicas: int = 1, wait_ms: int = 20_000) -> list[str]:
    """Ask for all places at once; return what became of each."""

    async def ask() -> list[str]:
        gate = ReplicaGate(Settings(redis_url=url, replicas_ack=replicas), wait_ms)
        try:
            done = await asyncio.gather(*(gate.confirm(*place) for place in places), return_exceptions=True)
        finally:
            await gate.close()
        assert all(each is None or isinstance(each, NotReplicated) for each in done), done
        return [str(each or "held") for each in done]

    return asyncio.run(ask())


def test_what_a_replica_holds_is_confirmed_and_what_is_not_there_is_lost(pair: tuple[RedisNode, RedisNode]) -> None:
    primary, replica = pair
    Link(primary.url)("HSET", "x", "status", "queued")
    held, lost = confirm(primary.url, ("x", "status"), ("nothing", "status"))
    assert held == "held"
    assert "it was lost" in lost
    with replica.client() as client:
        assert client.hget("x", "status") == "queued"


def test_many_who_ask_at_once_share_rounds(pair: tuple[RedisNode, RedisNode]) -> None:
    primary, _ = pair
    Link(primary.url)("HSET", "x", *(f"{each}" for place in range(200) for each in (f"f{place}", "1")))
    with primary.client() as client:
        client.config_resetstat()
        assert confirm(primary.url, *(("x", f"f{place}") for place in range(200))) == ["held"] * 200
        assert client.info("commandstats")["cmdstat_wait"]["calls"] < 10


def test_a_replica_that_does_not_answer_in_time_is_an_error(pair: tuple[RedisNode, RedisNode]) -> None:
    primary, replica = pair
    Link(primary.url)("HSET", "y", "status", "queued")
    replica.freeze()
    try:
        [said] = confirm(primary.url, ("y", "status"), wait_ms=50)
    finally:
        replica.thaw()
    assert "0 of 1 replicas hold this after 50 ms" in said
    assert "Idempotency-Key" in said
    [said] = confirm(primary.url, ("y", "status"), replicas=2, wait_ms=50)
    assert "of 2 replicas" in said
