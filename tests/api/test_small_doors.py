"""Small ways in, each closed: numbers without end, sessions without number."""

import asyncio

import pytest
import redis
from fastapi.testclient import TestClient

from corelane.domain.api_keys import Scope, key_digest
from corelane.plugins.console.auth import MOST_SESSIONS, SessionStore
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from corelane.store.link.link import AsyncLink
from tests.corelane.store_bench import Bench

CONSOLE = True

DIGITS = "9" * 5000


@pytest.mark.parametrize("after", [DIGITS, "9" * 20, "-1", "x"])
def test_cursor_without_end_is_refused(
    api: TestClient, raw: redis.Redis, settings: Settings, bell: str, after: str
) -> None:
    job = Bench(settings, raw, bell).submit(1)
    assert api.get(f"/v1/jobs/{job}/results", params={"after": after}).status_code == 422
    assert api.get(f"/console/jobs/{job}/results", params={"after": after}).status_code < 500


def test_job_that_cannot_be_read_is_left_out_of_the_list(
    api: TestClient, settings: Settings, raw: redis.Redis, bell: str
) -> None:
    bench = Bench(settings, raw, bell)
    first, broken, last = (bench.submit(1) for _ in range(3))
    raw.hset(keys.job(broken), "options", '{"top_k": "many"}')
    listed = api.get("/v1/jobs")
    assert [job["id"] for job in listed.json()["data"]] == [last, first]
    assert api.get("/console/jobs").status_code == 200


def test_oldest_session_of_a_key_ends_when_there_are_too_many(settings: Settings) -> None:
    api_keys = ApiKeyStore(Link(settings.redis_url))
    (_, secret), (_, other) = (api_keys.create(name, [Scope.READ]) for name in "ab")

    async def go() -> None:
        link = AsyncLink(settings.redis_url)
        store = SessionStore(link)
        of_other = await store.begin(key_digest(other))
        begun = [await store.begin(key_digest(secret)) for _ in range(MOST_SESSIONS)]
        await store.end(begun[3])
        begun.append(await store.begin(key_digest(secret)))
        assert [await store.find(each) is not None for each in begun] == [each != begun[3] for each in begun]
        begun.append(await store.begin(key_digest(secret)))
        assert [each for each in begun if await store.find(each) is None] == [begun[0], begun[3]]
        assert await store.find(of_other) is not None
        await link.close()

    asyncio.run(go())
