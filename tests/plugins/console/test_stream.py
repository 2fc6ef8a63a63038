"""A page's stream: what changed, once; bounded, and at its end when its page or its session is gone."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import redis

from corelane.domain.api_keys import Scope
from corelane.errors import StoreUnavailable
from corelane.plugins.console.auth import COOKIE
from corelane.plugins.console.pages import nav, stream
from corelane.plugins.console.pages.mount import FEEDS
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.api.conftest import Service, run_service
from tests.corelane.store_bench import LoneCore, answered, claimed
from tests.tools.waiting import eventually


@contextmanager
def following(service: Service, page: str = "overview", **headers: str) -> Iterator[Iterator[dict]]:
    """Open a stream; yield its updates."""
    accept = {"Accept": "text/event-stream", **headers}
    with service.http.stream("GET", f"/console/stream?page={page}", headers=accept) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))


def test_only_what_changed_is_sent_again(service: Service) -> None:
    with following(service) as updates:
        assert set(next(updates)["parts"]) == {"now", "issues", "cores", "owners", "models"}
        service.bench.submit(2)
        changed: set[str] = set()
        while "now" not in changed:
            changed = set(next(updates).get("parts", ()))
        assert "issues" not in changed


def test_page_is_told_that_the_store_is_away_and_that_it_is_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def feed(*_: object) -> nav.Update:
        told.append("")
        if len(told) in (2, 3):
            raise StoreUnavailable("Redis does not answer")
        return nav.Update({"main": f"<p>{min(len(told), 4)}</p>"})

    monkeypatch.setitem(FEEDS, "flickering", feed)
    with following(service, "flickering") as updates:
        assert next(updates) == {"parts": {"main": "<p>1</p>"}}
        assert next(updates) == {"values": {"away": "Redis does not answer"}}
        assert next(updates) == {"parts": {"main": "<p>4</p>"}, "values": {"away": ""}}


def test_unknown_page_has_no_stream(service: Service) -> None:
    assert service.http.get("/console/stream?page=nothing").status_code == 404


def test_streams_of_one_owner_are_bounded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_STREAMS", 1)
    with following(service) as updates:
        next(updates)
        refused = service.http.get("/console/stream?page=overview").text
        assert "retry: 10000" in refused
        assert "1 pages of the console are followed already: close some" in refused
    eventually(lambda: open_streams(service) == 0)
    with following(service) as updates:
        next(updates)


def test_pages_that_show_the_same_ask_once_a_tick_and_one_that_closes_takes_nothing_from_the_others() -> None:
    asked: list[str] = []

    async def feed(name: str) -> nav.Update:
        asked.append(name)
        await asyncio.sleep(0)
        return nav.Update({"main": name})

    async def go() -> None:
        shared = stream.SharedFeeds()
        closed = asyncio.create_task(shared.ask("a", lambda: feed("a")))
        await asyncio.sleep(0)
        others = [asyncio.create_task(shared.ask(name, partial(feed, name))) for name in "aab"]
        await asyncio.sleep(0)
        closed.cancel()
        assert [update.parts["main"] for update in await asyncio.gather(*others)] == ["a", "a", "b"]

    asyncio.run(go())
    assert asked == ["a", "b"]


def test_page_of_failed_results_goes_on_where_it_was_and_reads_no_result_again(
    service: Service, raw: redis.Redis
) -> None:
    core = LoneCore(service.bench.settings, "a/0")
    job = service.bench.submit(600)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    with following(service, f"job&id={job}&after=0&only=failed") as updates:
        assert "is-failed" not in next(updates)["parts"]["results"]
        raw.hdel(keys.results(job), *[ref.first for ref, _ in claim.refs])
        claim = claimed(core)
        core.commit(claim.lease, answered(claim, "failed"))
        results = ""
        while "is-failed" not in results:
            results = next(updates)["parts"].get("results", "")
        assert f"i{claim.refs[0][0].first}" in results


def test_page_that_begins_beyond_all_items_is_followed_without_them(service: Service) -> None:
    job = service.bench.submit(1)
    with following(service, f"job&id={job}&after={'9' * 5000}&only=") as updates:
        assert set(next(updates)["parts"]) == {"job-head"}


def open_streams(service: Service) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("corelane_event_streams"))


def test_stream_ends_with_its_session(settings: Settings, raw: redis.Redis, bell: str) -> None:
    link = Link(settings.redis_url)
    api_keys = ApiKeyStore(link)
    key, secret = api_keys.create("me", [Scope.READ])
    for service in run_service(settings.model_copy(update={"auth": "required"}), raw, bell):
        own = {"Sec-Fetch-Site": "same-origin"}
        session = service.http.post("/console/sign-in", data={"key": secret}, headers=own).cookies[COOKIE]
        service.http.cookies.clear()
        with following(service, Cookie=f"{COOKIE}={session}") as updates:
            next(updates)
            api_keys.revoke(key.id)
            assert all("parts" in update or "values" in update for update in updates)
    link.close()
