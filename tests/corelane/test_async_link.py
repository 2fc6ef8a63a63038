"""The API's connection: shared, pipelined, each command sent once; a lost one is told, then another is made."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis

from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.store.link.aio import AsyncLink


@asynccontextmanager
async def open_link(settings: Settings, timeout_s: float = 5) -> AsyncIterator[AsyncLink]:
    link = AsyncLink(settings.redis_url, timeout_s)
    try:
        yield link
    finally:
        await link.close()


def run(settings: Settings, action: Callable[[AsyncLink], Awaitable[None]], timeout_s: float = 5) -> None:
    async def main() -> None:
        async with open_link(settings, timeout_s) as link:
            await action(link)

    asyncio.run(main())


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


def test_scripts_are_taught_when_redis_forgot_them(settings: Settings, raw: redis.Redis) -> None:
    async def ask_twice(link: AsyncLink) -> None:
        for _ in range(2):
            raw.script_flush()
            assert (await link.run("admit", "nothing", "public"))[0] == []

    run(settings, ask_twice)


def test_a_connection_that_was_cut_is_told_and_made_anew(settings: Settings, raw: redis.Redis) -> None:
    async def cut(link: AsyncLink) -> None:
        for _ in range(20):
            await link("SET", "k", 1)
            waiting = asyncio.create_task(link("BLPOP", "never", 3))
            await asyncio.sleep(0.01)
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

    run(settings, outwait, timeout_s=0.3)


def test_a_caller_that_gives_up_shifts_nobodys_replies(settings: Settings) -> None:
    async def give_up(link: AsyncLink) -> None:
        for n in range(50):
            task = asyncio.create_task(link("ECHO", f"lost {n}"))
            await asyncio.sleep(0)
            task.cancel()
            assert await link("ECHO", f"kept {n}") == f"kept {n}".encode()

    run(settings, give_up)
