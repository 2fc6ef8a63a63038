"""The state of one API process: its link to Redis and all objects that use it. Belongs to one event loop."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

from api.jobs import Jobs, LateJobs
from api.middleware.key_cache import KeyCache
from api.middleware.rate_limit import RateLimiter
from corelane.broker.app import bell_envelope, make_celery
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.jobs.events import JobEvents
from corelane.store.jobs.store import JobStore
from corelane.store.link.link import AsyncLink
from corelane.store.link.replicas import open_gate
from corelane.store.metrics import Flushing, ProcessMetrics
from corelane.store.pauses import PauseStore
from corelane.store.rollout import Rollout
from corelane.submitting.large_bodies import LargeBodies
from corelane.tracing import Tracer

log = get_logger(__name__)

#: Time limit for closing, in seconds: the last flush may wait for a Redis that does not reply.
CLOSE_S = 20.0

T = TypeVar("T")


@runtime_checkable
class Running(Protocol):
    """An activity in the background of one API process."""

    def start(self) -> None:
        """Start it, in the event loop of the process."""

    async def close(self) -> None:
        """Stop it."""


class AppState:
    """The objects that routes and layers of one API process share. A plugin's own objects are found by their type."""

    def __init__(self, settings: Settings, tracer: Tracer | None) -> None:
        self.settings, self.tracer = settings, tracer
        self.link = link = AsyncLink(settings.redis_url)
        self.gate = gate = open_gate(settings)
        self.bell = bell = bell_envelope(make_celery(settings))
        self.metrics, self.fleet = ProcessMetrics("api"), Fleet(link)
        self.store = JobStore(link, settings, bell, gate)
        self.jobs = Jobs(self.store, self.fleet, settings, self.metrics, tracer)
        self.late_jobs = LateJobs(self.store)
        self.flushing = Flushing(self.metrics, link)
        self.key_finder = ApiKeyFinder(link)
        self.keys = KeyCache(self.key_finder)
        self.rate_limiter = RateLimiter(settings)
        self.job_events = JobEvents(link)
        self.rollout = Rollout(link)
        self.pauses = PauseStore(link, bell)
        self.deliveries = DeliveryLog(link)
        self.large_bodies = LargeBodies()
        #: The objects that plugins add, by type.
        self._of_plugins: dict[type, Any] = {}
        self._running: list[Running] = []

    def add(self, parts: Iterable[object]) -> None:
        """Add a plugin's objects."""
        for each in parts:
            self._of_plugins[type(each)] = each
            if isinstance(each, Running):
                self._running.append(each)

    def of(self, kind: type[T]) -> T:
        """Return a plugin's object by its type; raise KeyError if no plugin has one."""
        found: T = self._of_plugins[kind]
        return found

    def start(self) -> None:
        """Start all activities in the background."""
        self.jobs.completions.start()
        self.flushing.start()
        for each in self._running:
            each.start()
        if self.settings.requires_keys:
            self.keys.start()

    async def close(self) -> None:
        """Stop everything, and close the connections. What does not end in time is logged by name and left."""
        closing = asyncio.create_task(self._close())
        await asyncio.wait((closing,), timeout=CLOSE_S)
        if closing.done():
            closing.result()
            return
        log.error("close_late", waits_for=awaited(closing))
        closing.cancel()

    async def _close(self) -> None:
        await self.jobs.completions.close()
        await self.late_jobs.close()
        await self.keys.close()
        await self.rate_limiter.close()
        for each in self._running:
            await each.close()
        await self.flushing.close()
        await self.link.close()
        if self.gate is not None:
            await self.gate.close()


def awaited(task: "asyncio.Task[None]") -> list[str]:
    """Return the names of the coroutines that a task is in, the innermost last."""
    names = list[str]()
    coroutine: object = task.get_coro()
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        names.append(code.co_qualname)
        coroutine = getattr(coroutine, "cr_await", None)
    return names
