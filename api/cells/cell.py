"""One cell as an API process has it: its Redis, and everything that stands on that. Without cells there is one."""

import asyncio

from starlette.types import ASGIApp

from api.deps import Parts
from api.jobs import Jobs
from api.middleware.console_door import ConsoleDoor
from api.middleware.edge import InnerLayer, Refuse
from api.middleware.key_cache import KeyCache
from api.middleware.open_files import OpenFiles
from api.middleware.rate_limit import RateLimiter
from api.overview import Overviews
from corelane.broker.app import bell_envelope, make_celery
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.audit import Audit
from corelane.store.batches import BatchStore
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.file_storage import open_storage
from corelane.store.files import FileStore
from corelane.store.fleet import Fleet
from corelane.store.history import History
from corelane.store.jobs.events import JobEvents
from corelane.store.jobs.owners import Owners
from corelane.store.jobs.store import JobStore
from corelane.store.link.link import AsyncLink
from corelane.store.link.replicas import open_gate
from corelane.store.metrics import Flushing, ProcessMetrics
from corelane.store.pauses import PauseStore
from corelane.store.rates import RateStore
from corelane.store.rollout import Rollout
from corelane.store.sessions import SessionStore
from corelane.submitting.bulk import Bulk
from corelane.submitting.dry_run import DryRuns
from corelane.submitting.large_bodies import LargeBodies
from corelane.tracing import Tracer

log = get_logger(__name__)

#: Time for a cell to close, in seconds: its last flush may wait for a Redis that is silent.
CLOSE_S = 20.0


class Cell:
    """The parts of one cell. Belongs to one event loop."""

    def __init__(self, settings: Settings, tracer: Tracer | None) -> None:
        self.settings = settings
        self.link = link = AsyncLink(settings.redis_url)
        metrics, fleet = ProcessMetrics("api"), Fleet(link)
        self._gate = gate = open_gate(settings)
        bell = bell_envelope(make_celery(settings))
        store = JobStore(link, settings, bell, gate)
        jobs = Jobs(store, fleet, settings, metrics, tracer)
        files = OpenFiles(metrics)

        async def measure() -> None:
            files.measure()
            await jobs.measure_refusals()

        flushing, overviews = Flushing(metrics, link, measure), Overviews(link)
        self.finder = ApiKeyFinder(link)
        self.keys = KeyCache(self.finder)
        self.rate_limiter = RateLimiter(settings)
        self.parts = Parts(
            settings,
            link,
            store,
            JobEvents(link),
            fleet,
            Rollout(link),
            PauseStore(link, bell),
            DeliveryLog(link),
            jobs,
            metrics,
            flushing,
            FileStore(link, gate),
            BatchStore(link, gate),
            open_storage(settings.files_url, settings.files_root),
            Bulk(jobs.submitter, store, settings),
            Audit(link),
            overviews,
            History(link),
            DryRuns(jobs.submitter, RateStore(link), settings),
            LargeBodies(),
        )

    def start(self) -> None:
        """Start what runs beside requests."""
        self.parts.jobs.completions.start()
        self.parts.flushing.start()
        self.parts.overviews.start()
        if self.settings.requires_keys:
            self.keys.start()

    async def close(self) -> None:
        """Stop it, and close the connections."""
        await self.parts.jobs.completions.close()
        await self.keys.close()
        await self.rate_limiter.close()
        await self.parts.overviews.close()
        await self.parts.flushing.close()
        await self.link.close()
        if self._gate is not None:
            await self._gate.close()

    def layer(self, app: ASGIApp, sessions: SessionStore, refuse_page: Refuse) -> InnerLayer:
        """Return the layer in front of the routes that identifies this cell's callers."""
        owners = Owners(self.link, self.settings.max_owners)
        return InnerLayer(app, self.settings, self.keys, owners, self.rate_limiter, ConsoleDoor(sessions), refuse_page)


async def close_all(cells: list[Cell]) -> None:
    """Close every cell; one that is away, or does not come to an end, holds up no other and not the stop."""
    closing = {asyncio.create_task(cell.close(), name=f"close-{number}") for number, cell in enumerate(cells)}
    done, late = await asyncio.wait(closing, timeout=CLOSE_S)
    for each in late:
        log.error("cell_close_late", task=each.get_name(), waits_for=awaited(each))
        each.cancel()
    for each in done:
        each.result()


def awaited(task: "asyncio.Task[None]") -> list[str]:
    """Return the coroutines that a task is in, the innermost last."""
    names = list[str]()
    coroutine: object = task.get_coro()
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        names.append(code.co_qualname)
        coroutine = getattr(coroutine, "cr_await", None)
    return names
