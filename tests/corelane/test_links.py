"""The links to Redis: what both promise, and what the shared one does when callers give up and when networks fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import pytest
import redis
import uvloop

from corelane.domain.job_filter import JobFilter
from corelane.errors import StoreUnavailable
from corelane.plugins.files.store.batches import BatchStore
from corelane.plugins.files.store.files import FileStore
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.gauges import read_waits
from corelane.store.jobs.events import BEGINNING, JobEvents
from corelane.store.jobs.store import JobStore
from corelane.store.link.blocking import Link
from corelane.store.link.link import WRITE_BUFFER_BYTES, AsyncLink, CommonLink, Lease
from corelane.store.link.subscription import Channels, subscribe
from tests.corelane.store_bench import Bench, answer_all
from tests.tools.proxy import Proxy, proxy_before
from tests.tools.redis import admin_url, at_port
from tests.tools.waiting import eventually_async

LEASE = Lease("cl:feeder", ttl_ms=60_000)

#: What Redis answers, it answers within this, however busy the machine is, in seconds.
PATIENT_S = 30.0


@asynccontextmanager
async def open_link(url: str, timeout_s: float = PATIENT_S) -> AsyncIterator[AsyncLink]:
    link = AsyncLink(url, timeout_s)
    try:
        yield link
    finally:
        await link.close()


def run(settings: Settings, action: Callable[[AsyncLink], Awaitable[None]], timeout_s: float = PATIENT_S) -> None:
    run_at(settings.redis_url, action, timeout_s)


def run_at(url: str, action: Callable[[AsyncLink], Awaitable[None]], timeout_s: float = PATIENT_S) -> None:
    async def main() -> None:
        async with open_link(url, timeout_s) as link:
            await action(link)

    asyncio.run(main())


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings of a user who may send anything: these tests are of links, and no service sends what they do."""
    return settings.model_copy(update={"redis_url": admin_url(settings.redis_url)})


@pytest.fixture
def proxy(settings: Settings) -> Iterator[Proxy]:
    with proxy_before(urlsplit(settings.redis_url).port or 0) as proxy:
        yield proxy


def through(proxy: Proxy, settings: Settings) -> str:
    return at_port(settings.redis_url, proxy.port)


def port_of(link: AsyncLink) -> int:
    assert link._wire is not None
    return int(link._wire.transport.get_extra_info("sockname")[1])


def test_callers_that_meet_get_their_own_replies(settings: Settings) -> None:
    async def many_callers(link: AsyncLink) -> None:
        found = await asyncio.gather(*(link.many([("SET", f"k{n}", n), ("GET", f"k{n}")]) for n in range(500)))
        assert found == [[b"OK", str(n).encode()] for n in range(500)]

    run(settings, many_callers)


def test_an_error_reply_is_its_callers_alone(settings: Settings) -> None:
    async def one_errs(link: AsyncLink) -> None:
        found: list[object] = await asyncio.gather(link("LPUSH"), link("PING"), return_exceptions=True)
        assert isinstance(found[0], redis.ResponseError)
        assert found[1] == b"PONG"

    run(settings, one_errs)


def test_the_library_is_loaded_when_redis_forgot_it(settings: Settings, raw: redis.Redis) -> None:
    async def ask_twice(link: AsyncLink) -> None:
        for _ in range(2):
            raw.function_flush("SYNC")
            assert (await link.run("admit", model="nothing", owner="public"))[0] == []

    run(settings, ask_twice)
    raw.function_flush("SYNC")
    assert Link(settings.redis_url).run("admit", model="nothing", owner="public")[0] == []


def test_readers_of_the_store_find_the_same_on_either_link(bench: Bench) -> None:
    async def read(link: CommonLink) -> tuple[object, ...]:
        store = JobStore(link, bench.settings, bench.bell)
        record = await store.get(job)
        assert record is not None
        return (
            record,
            await store.results(record, 0, 10),
            await store.page(record.owner, JobFilter(), None, 10),
            await JobEvents(link).read(job, BEGINNING),
            await Fleet(link).models(),
            await DeliveryLog(link).counts(),
            await FileStore(link).page(record.owner, None, 10, "asc", None),
            await BatchStore(link).has_work(),
            await ApiKeyFinder(link).any_active(),
            await read_waits(link),
        )

    core = bench.core("a/0")
    job = bench.submit(3)
    answer_all(core)
    found = bench.with_link(read)
    assert Link(bench.settings.redis_url).read(read) == found
    assert len(found[1]) == 3  # type: ignore[arg-type]


def test_a_reader_that_waits_for_something_else_is_an_error_on_the_blocking_link(settings: Settings) -> None:
    async def sleep(link: CommonLink) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError):
        Link(settings.redis_url).read(sleep)


def test_a_connection_that_was_cut_is_told_and_made_again(settings: Settings, raw: redis.Redis) -> None:
    async def cut(link: AsyncLink) -> None:
        for _ in range(20):
            await link("SET", "k", 1)
            waiting = asyncio.create_task(link("BLPOP", "never", 60))
            await eventually_async(lambda: raw.info("clients")["blocked_clients"])
            raw.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(StoreUnavailable):
                await waiting
        assert await link("GET", "k") == b"1"

    run(settings, cut)


def test_a_silent_redis_is_given_up_and_nothing_late_is_mistaken(settings: Settings) -> None:
    async def outwait(link: AsyncLink) -> None:
        with pytest.raises(StoreUnavailable):
            await link("BLPOP", "never", 5)
        assert await link("ECHO", "mine") == b"mine"

    run(settings, outwait, timeout_s=1.5)


def test_a_caller_that_gives_up_shifts_nobodys_replies(settings: Settings) -> None:
    async def give_up(link: AsyncLink) -> None:
        for n in range(50):
            task = asyncio.create_task(link("ECHO", f"lost {n}"))
            await asyncio.sleep(0)
            task.cancel()
            assert await link("ECHO", f"kept {n}") == f"kept {n}".encode()

    run(settings, give_up)


def test_a_call_whose_time_is_over_ends_nobody_elses(settings: Settings) -> None:
    async def outwait(link: AsyncLink) -> None:
        connection = await link("CLIENT", "ID")
        assert link._wire is not None
        heard = link._wire.heard
        pops = [("BLPOP", "never", 0.6)] * 3 + [("BLPOP", "never", 1.2)]
        slow = asyncio.create_task(link.many(pops))
        await eventually_async(lambda: link._wire is not None and link._wire.heard >= heard + 3)
        patient = asyncio.create_task(link("ECHO", "patient"))
        with pytest.raises(StoreUnavailable):
            await slow
        assert await patient == b"patient"
        assert await link("CLIENT", "ID") == connection

    run(settings, outwait, timeout_s=2)


def test_a_connection_that_fell_silent_is_left_to_those_who_wait_on_it(
    settings: Settings, proxy: Proxy, raw: redis.Redis
) -> None:
    async def stall(link: AsyncLink) -> None:
        old, port = await link("CLIENT", "ID"), port_of(link)
        proxy.stall([port])
        first = asyncio.create_task(link("ECHO", "first"))
        await asyncio.sleep(2)
        second = asyncio.create_task(link("ECHO", "second"))
        with pytest.raises(StoreUnavailable):
            await first
        assert await link("CLIENT", "ID") != old
        assert not second.done()
        proxy.flow([port])
        assert await second == b"second"
        await eventually_async(lambda: str(old) not in {each["id"] for each in raw.client_list()})

    run_at(through(proxy, settings), stall, timeout_s=4)


def test_a_connection_that_swallows_everything_is_replaced_after_one_call(settings: Settings, proxy: Proxy) -> None:
    async def swallow(link: AsyncLink) -> None:
        await link("SET", "k", 1)
        proxy.half_open()
        with pytest.raises(StoreUnavailable):
            await link("GET", "k")
        assert await link("GET", "k") == b"1"

    run_at(through(proxy, settings), swallow, timeout_s=1.5)


def test_what_waits_to_be_sent_is_bounded_and_none_of_it_is_lost(settings: Settings, proxy: Proxy) -> None:
    async def press(link: AsyncLink) -> None:
        await link("PING")
        assert link._wire is not None
        transport = link._wire.transport
        proxy.stall([port_of(link)])
        texts = [f"{n:06}".encode() * 50_000 for n in range(60)]
        calls = [asyncio.create_task(link("ECHO", text)) for text in texts]
        await eventually_async(lambda: transport.get_write_buffer_size() > WRITE_BUFFER_BYTES)
        assert transport.get_write_buffer_size() < WRITE_BUFFER_BYTES + 400_000
        for call in calls[1::2]:
            call.cancel()
        proxy.flow()
        assert await asyncio.gather(*calls[::2]) == texts[::2]
        assert await link("ECHO", "next") == b"next"

    run_at(through(proxy, settings), press, timeout_s=30)


def test_callers_that_meet_share_one_attempt_to_connect() -> None:
    async def main() -> None:
        accepted: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
        link = AsyncLink(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.3)
        found = await asyncio.gather(*(link("PING") for _ in range(20)), return_exceptions=True)
        assert {type(each) for each in found} == {StoreUnavailable}
        assert len(accepted) == 1
        await link.close()
        server.close()
        for writer in accepted:
            writer.close()

    asyncio.run(main())


def test_a_caller_that_leaves_while_connecting_does_not_end_it_for_the_others(settings: Settings, proxy: Proxy) -> None:
    async def leave(link: AsyncLink) -> None:
        proxy.stall()
        first, second = (asyncio.create_task(link("ECHO", text)) for text in ("first", "second"))
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        proxy.flow()
        assert await second == b"second"

    run_at(through(proxy, settings), leave)


def test_a_lease_is_one_holders_and_its_fence_grows_with_each_holding(settings: Settings, raw: redis.Redis) -> None:
    link = Link(settings.redis_url)
    first, refused, again = [link(*LEASE.take(name)) for name in ("one", "two", "one")]
    assert (refused, again) == (0, first)
    assert raw.get(LEASE.key) == "one"
    link(*LEASE.release("two"))
    assert raw.get(LEASE.key) == "one"
    link(*LEASE.release("one"))
    assert raw.get(LEASE.key) is None
    assert link(*LEASE.take("two")) > first


def test_a_lease_lapses_unless_it_is_extended(settings: Settings, raw: redis.Redis) -> None:
    link = Link(settings.redis_url)
    first = link(*LEASE.take("one"))
    raw.pexpire(LEASE.key, 20_000)
    link(*LEASE.take("one"))
    assert raw.pttl(LEASE.key) > 20_000
    raw.delete(LEASE.key)
    assert link(*LEASE.take("two")) > first
    assert link(*LEASE.take("one")) == 0


def test_subscription_outlives_a_message_that_is_not_utf8(settings: Settings) -> None:
    heard: list[str] = []

    def hear_one(_: str, message: str) -> None:
        heard.append(message)

    async def hear() -> None:
        async with open_link(settings.redis_url) as link:
            listening = asyncio.create_task(subscribe(settings.redis_url, Channels("news"), hear_one))
            await eventually_async(lambda: heard)
            await link.many([("PUBLISH", "news", b"\xff"), ("PUBLISH", "news", "next")])
            await eventually_async(lambda: heard[-1] == "next" or listening.done())
            listening.cancel()

    asyncio.run(hear())
    assert heard == ["", "\udcff", "next"]


def test_channels_may_come_and_go_while_their_connection_breaks(settings: Settings) -> None:
    channels = Channels("first")

    async def hear() -> None:
        listening = asyncio.create_task(subscribe(settings.redis_url, channels, lambda *_: None))
        await eventually_async(lambda: channels.transport)
        cast(asyncio.WriteTransport, channels.transport).abort()
        channels.add("second")
        channels.remove("first")
        with pytest.raises(StoreUnavailable):
            await listening

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(hear())
    assert list(channels.names) == ["second"]
