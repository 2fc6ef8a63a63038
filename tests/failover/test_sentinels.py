"""One URL finds the primary for every kind of connection, also after another became it: with TLS, passwords and client
certificates where a server here speaks TLS (``make redis-servers``), otherwise without.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.middleware.rate_limit import Kind, RateLimiter
from corelane.broker.app import make_celery
from corelane.cli.doctor import check_redis
from corelane.errors import StoreUnavailable, Unavailable
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.link.link import AsyncLink
from corelane.store.link.subscription import Channels, subscribe
from tests.tools.servers import Replicated, find_tls_server, make_certificates
from tests.tools.waiting import eventually, eventually_async


@pytest.fixture(scope="module")
def started_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    folder = tmp_path_factory.mktemp("trio")
    more: dict[str, Any] = {}
    if (binary := find_tls_server()) is not None:
        more = {"binary": binary, "tls": make_certificates(folder), "password": "secret", "sentinel_password": "other"}
    # A primary that was replaced while it lives takes no more writes: its replicas have left it.
    trio = Replicated(folder, "--min-replicas-to-write", "1", replicas=2, **more)
    try:
        trio.start()
        yield trio
    finally:
        trio.stop()


@pytest.fixture
def trio(started_trio: Replicated) -> Replicated:
    """Return the trio whole, whatever the test before ended of it."""
    started_trio.mend()
    return started_trio


def repeat(action: Callable[..., Any], *given: Any) -> Any:
    """Call it until Redis is there again."""
    found: list[Any] = []

    def is_done() -> bool:
        try:
            found.append(action(*given))
        except Unavailable:
            return False
        return True

    eventually(is_done)
    return found[0]


def test_every_connection_follows_the_primary(trio: Replicated) -> None:
    settings = Settings(redis_url=trio.url, submit_rate="100/minute")
    link, app = Link(trio.url), make_celery(settings)
    old = trio.primary
    first = link.run("lease", key="a", holder="one", ttl_ms=60_000)
    heard: list[str] = []

    def hear_one(_: str, message: str) -> None:
        heard.append(message)

    async def listen() -> None:
        while True:
            try:
                await subscribe(trio.url, Channels("news"), hear_one)
            except Unavailable:
                await asyncio.sleep(0.05)

    async def steps() -> None:
        own, listening, limiter = AsyncLink(trio.url), asyncio.create_task(listen()), RateLimiter(settings)
        assert await own("SET", "x", "1")
        # The limiter gives up early, and a request goes on without a count.
        await eventually_async(lambda: limiter.count(Kind.SUBMITS, "somebody"))
        with app.connection_for_write() as connection:
            connection.default_channel.client.lpush("queue", "before")
        await eventually_async(lambda: heard == [""])
        new = await asyncio.to_thread(trio.promote)
        while True:
            try:
                await own("SET", "x", "2")
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        with new.client() as client:
            assert client.get("x") == "2"
        await asyncio.to_thread(old.kill)
        await eventually_async(lambda: limiter.count(Kind.SUBMITS, "somebody"))
        # Sentinels close subscriptions of a primary that they replace, so one may subscribe more than once on its way.

        async def is_heard() -> bool:
            await own("PUBLISH", "news", "here")
            return "here" in heard

        await eventually_async(is_heard)
        assert heard[:2] == ["", ""]
        listening.cancel()
        await limiter.close()
        await own.close()

    asyncio.run(steps())
    assert repeat(link, "GET", "x") == b"2"
    assert repeat(lambda: link.run("lease", key="b", holder="one", ttl_ms=60_000)) > first
    with app.connection_for_write() as connection:
        connection.default_channel.client.lpush("queue", "after")
    with trio.primary.client() as client:
        assert client.lrange("queue", 0, 0) == ["after"]
    link.close()


def test_a_connection_to_a_replica_is_given_up(trio: Replicated) -> None:
    replica = trio.replicas[0]
    link = Link(replica.url)
    assert link("PING")
    with pytest.raises(StoreUnavailable, match="takes no writes"):
        link("SET", "x", "1")

    async def ask() -> None:
        own = AsyncLink(replica.url)
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await own.run("note_round", name="sweeps")
        assert await own("PING")
        await own.close()

    asyncio.run(ask())


def test_sentinels_that_know_no_such_primary_are_named(trio: Replicated) -> None:
    url = trio.url.replace("/corelane/", "/nobody/")
    with pytest.raises(StoreUnavailable, match="knows no primary nobody"):
        Link(url)("PING")


def test_doctor_finds_the_primary_by_sentinels_and_counts_its_replicas(trio: Replicated) -> None:
    settings = Settings(redis_url=trio.url)
    eventually(lambda: check_redis(settings.model_copy(update={"replicas_ack": 1})).state == "ok")
    assert check_redis(settings.model_copy(update={"replicas_ack": 5})).state == "fail"


def test_a_server_whose_certificate_is_not_trusted_is_refused(
    trio: Replicated, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if trio.primary.tls is None:
        pytest.skip("no Redis with TLS: `make redis-servers` gets one")
    foreign = make_certificates(tmp_path_factory.mktemp("foreign"))
    url = trio.primary.url.replace(str(trio.primary.tls.ca), str(foreign.ca))
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        Link(url)("PING")
    with pytest.raises(StoreUnavailable):
        Link(trio.primary.url.partition("&ssl_certfile")[0])("PING")  # the server wants a certificate of its client
