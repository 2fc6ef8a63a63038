"""Deliveries of made-up events: what the library schedules as jobs begin and end, for any subject."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from corelane.settings import Settings
from corelane.store.deliveries.sending import Attempt, Delivery, DeliveryStore
from corelane.store.link.blocking import Link
from corelane.store.link.library import make_library, read_code
from corelane.store.link.link import AsyncLink
from corelane.store.webhook_secrets import WebhookSecrets

#: The library, with a function more that calls the one that schedules.
LIBRARY = make_library(
    read_code()
    + """
define('schedule', function(ask, args)
  return deliveries.schedule(ask.event, ask.subject, ask.owner, ask.url, now_ms(), ask.ttl, 'data', args[2], args[3])
end)
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

    def make_secret(self, owner: str, overlap_s: int) -> str:
        """Make an owner's first secret, and return its value."""

        async def run() -> str:
            link = AsyncLink(self.settings.redis_url)
            try:
                return (await WebhookSecrets(link, owner).add(overlap_s, is_rotation=False)).secret
            finally:
                await link.close()

        return asyncio.run(run())

    def take(self, limit: int) -> list[str]:
        return self.run(lambda store: store.take(limit))

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
    """Schedule one event of a subject for a URL, once; return its id."""
    link = Link(settings.redis_url)
    ask = {"event": event, "subject": subject, "owner": owner, "url": url, "ttl": settings.results_ttl_s}
    facts = [orjson.dumps(each) for each in (ask, data, headers or {})]
    _, found = link.many([LIBRARY.load, ("FCALL", f"{LIBRARY.name}_schedule", 0, *facts)])
    link.close()
    return str(found.decode())
