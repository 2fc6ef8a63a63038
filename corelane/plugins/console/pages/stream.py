"""One stream of events a page (SSE): the parts of the page that changed, about once a second.

A page has a *feed*: a function that returns the parts of the page by the ids of their elements, as HTML, and further
values under names that the page's script knows. The stream calls the feed, and sends the parts that changed. Pages with
the same content share one call a second. While the store does not reply, or too many pages are open, the value
``away`` gives the reason. The stream ends when the server stops, when the caller's session ends, and after ten minutes.
Browsers then reconnect by themselves.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.deps import ReadCaller, StateDep
from api.routes.events import PING_S, RETRY_MS, RETRY_SPREAD_MS, EventStream
from api.state import AppState
from corelane.errors import NotFound, Unavailable
from corelane.log import get_logger
from corelane.plugins.console.auth import CONSOLE, SessionStore, session_of
from corelane.plugins.console.pages.nav import Feed, Update
from corelane.plugins.console.pages.page_route import PageRoute

log = get_logger(__name__)

#: Time between two calls of a feed, in seconds.
TICK_S = 1.0

#: Time between two checks of the session, in seconds: as for keys of the API.
SESSION_S = 2.0

#: A stream ends after this time, in seconds, so that a new request is counted, logged and checked.
LONGEST_S = 600.0

#: Most streams that one owner may have open in one process. All callers without a key are one owner.
MOST_STREAMS = 10

#: When a page that was refused a stream tries again, in milliseconds.
REFUSED_MS = 10_000


def make_router(feeds: Mapping[str, Feed], sessions: SessionStore) -> APIRouter:
    """Return the route of the streams, with the feeds by the names of their pages."""
    router = APIRouter(prefix=CONSOLE, route_class=PageRoute)
    streams: Counter[str] = Counter()
    shared = SharedFeeds()

    @router.get("/stream", response_class=EventStream)
    async def follow_page(
        request: Request,
        state: StateDep,
        caller: ReadCaller,
        page: Annotated[str, Query(max_length=50)],
    ) -> Response:
        """Stream the changes of a page."""
        feed = feeds.get(page)
        if feed is None:
            raise NotFound(f"there is no stream of {page!r}")
        if streams[caller.owner] >= MOST_STREAMS:
            return EventStream(refusal())
        arguments = {name: value for name, value in request.query_params.items() if name != "page"}

        session = session_of(request.headers) if state.settings.requires_keys else ""

        async def ask() -> Update:
            key = (page, caller.owner, caller.scopes, tuple(sorted(arguments.items())))
            return await shared.ask(key, lambda: feed(state, caller, arguments))

        async def is_signed_in() -> bool:
            return not session or await sessions.find(session) is not None

        return EventStream(counted(streams, caller.owner, updates(state, await ask(), ask, is_signed_in)))

    return router


class SharedFeeds:
    """The current contents of pages, by page, caller and arguments. All requests within a tick share one call."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, tuple[float, asyncio.Task[Update]]] = {}

    async def ask(self, key: Hashable, feed: Callable[[], Coroutine[Any, Any, Update]]) -> Update:
        """Return the content of a page, made now or less than a tick ago."""
        now = asyncio.get_running_loop().time()
        # Streams wake a little early or late.
        fresh = {known: asked for known, asked in self._asked.items() if now - asked[0] < 0.9 * TICK_S}
        if key not in fresh:
            fresh[key] = now, asyncio.create_task(feed())
        self._asked = fresh
        # A request that is closed must not cancel the call for the others.
        return await asyncio.shield(fresh[key][1])


async def refusal() -> AsyncIterator[bytes]:
    """Yield the reason why a page gets no stream. The page shows it, and tries again after a while."""
    yield format_sse_event(retry=REFUSED_MS)
    why = f"{MOST_STREAMS} pages of the console are followed already: close some"
    yield format_sse_event(data_str=orjson.dumps({"values": {"away": why}}).decode(), event="update")


async def counted(streams: Counter[str], owner: str, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream's content. While the stream is open, it counts as one of the owner's."""
    streams[owner] += 1
    try:
        async for event in content:
            yield event
    finally:
        streams[owner] -= 1
        if not streams[owner]:
            del streams[owner]


async def updates(
    state: AppState, update: Update, ask: Callable[[], Awaitable[Update]], is_signed_in: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Yield the changes of a page, beginning with ``update``, until the server stops or the session ends."""
    clock = asyncio.get_running_loop().time
    begun = sent_at = checked_at = clock()
    sent: dict[str, Any] = {}
    yield format_sse_event(retry=RETRY_MS)
    with state.metrics.counted("event_streams"), state.jobs.completions.watch("") as bell:
        while not state.jobs.completions.is_closing and clock() - begun < LONGEST_S:
            changed = _changed(sent, update)
            if changed:
                yield format_sse_event(data_str=orjson.dumps(changed).decode(), event="update")
                sent_at = clock()
            elif clock() - sent_at >= PING_S:
                yield KEEPALIVE_COMMENT
                sent_at = clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await bell.wait()
            bell.clear()
            try:
                if clock() - checked_at >= SESSION_S:
                    if not await is_signed_in():
                        return
                    checked_at = clock()
                update, away = await ask(), ""
            except NotFound:
                return
            except Unavailable as error:
                log.info("page_waits_for_store", detail=error.detail)
                update, away = Update({}), error.detail
            if away or sent.get("away"):
                update = replace(update, values={**(update.values or {}), "away": away})
    yield format_sse_event(retry=random.randint(*RETRY_SPREAD_MS))


def _changed(sent: dict[str, Any], update: Update) -> dict[str, Any]:
    """Return the parts that differ from those in ``sent``, and note them as sent."""
    parts = {name: html for name, html in update.parts.items() if sent.get(f"#{name}") != html}
    values = {name: value for name, value in (update.values or {}).items() if sent.get(name) != value}
    sent.update({f"#{name}": html for name, html in update.parts.items()} | values)
    return ({"parts": parts} if parts else {}) | ({"values": values} if values else {})
