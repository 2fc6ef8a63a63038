"""Deliveries of made-up events: what the store's scripts schedule as jobs begin and end, for any subject."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from corelane.settings import Settings
from corelane.store.deliveries.sending import LEASE_S, Attempt, Delivery, DeliveryStore
from corelane.store.link.aio import AsyncLink
from corelane.store.link.blocking import Link
from corelane.store.link.scripts import FOLDER, SHARED

#: The shared functions, and a call of the one that schedules.
SCRIPT = (
    "".join((FOLDER / f"{name}.lua").read_text() for name in SHARED)
    + """
local event, subject, owner, url, ttl, data, headers = unpack(ARGV)
return schedule_delivery(event, subject, owner, url, now_ms(), tonumber(ttl), 'data', data, headers)
"""
)


Found = TypeVar("Found")


class Deliveries:
    """The sender's store for tests that are no coroutines; each call has a connection of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def run(self, call: Callable[[DeliveryStore], Awaitable[Found]]) -> Found:
        """Run a call of the store, or of a function that takes it."""

        async def run() -> Found:
            link = AsyncLink(self.settings.redis_url)
            try:
                return await call(DeliveryStore(link, self.settings))
            finally:
                await link.close()

        return asyncio.run(run())

    def take(self, limit: int, lease_s: float = LEASE_S) -> list[str]:
        return self.run(lambda store: store.take(limit, lease_s))

    def hold(self, deliveries: Sequence[str]) -> None:
        self.run(lambda store: store.hold(deliveries))

    def get(self, delivery: str) -> Delivery | None:
        return self.run(lambda store: store.get(delivery))

    def fix(self, delivery: str, payload: bytes) -> bytes | None:
        return self.run(lambda store: store.fix(delivery, payload))

    def now_ms(self) -> int:
        return self.run(lambda store: store.now_ms())

    def report(self, delivery: str, outcome: str, attempt: Attempt, **facts: Any) -> str:
        return self.run(lambda store: store.report(delivery, outcome, attempt, **facts))


def schedule(
    settings: Settings,
    event: str,
    subject: str,
    owner: str,
    url: str,
    data: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> str:
    """Schedule one event of a subject for a URL, once; its id."""
    link = Link(settings.redis_url)
    facts = (settings.results_ttl_s, orjson.dumps(data), orjson.dumps(headers or {}))
    found = link("EVAL", SCRIPT, 0, event, subject, owner, url, *facts)
    link.close()
    return str(found.decode())
