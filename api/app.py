"""The API application: routes, error handlers, layers, lifespan. Importing this module creates nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from api.console.mount import add_console
from api.console.pages import refuse_page
from api.context import REQUEST_ID
from api.deps import Parts, refuse_unknown_parameters
from api.docs.openapi import describe_common_responses
from api.docs.swagger import add_pages
from api.errors import add_error_handlers, refuse
from api.jobs import Jobs
from api.middleware.console_door import ConsoleDoor
from api.middleware.edge import InnerLayer, OuterLayer
from api.middleware.key_cache import KeyCache
from api.middleware.rate_limit import RateLimiter
from api.middleware.traces import TraceLayer
from api.overview import Overviews
from api.routes import (
    answers,
    audit,
    batches,
    bulk,
    deliveries,
    events,
    failed_items,
    files,
    health,
    history,
    jobs,
    results,
    rollout,
    usage,
)
from api.routes import fleet as fleet_routes
from corelane import __version__
from corelane.broker.app import bell_envelope, make_celery
from corelane.errors import Unavailable
from corelane.log import configure_logging, get_logger
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
from corelane.store.rates import RateStore
from corelane.store.rollout import Rollout
from corelane.store.sessions import SessionStore
from corelane.submitting.bulk import Bulk
from corelane.submitting.dry_run import DryRuns
from corelane.tracing import Tracer, open_tracer

SUMMARY = "Questions with their passages go in, answers with exact offsets come out: one or a million, nothing lost."

log = get_logger(__name__)

#: The methods and headers that web pages of the allowed origins may send, and the headers they may read.
CORS_METHODS = ("GET", "POST", "PUT", "DELETE")
CORS_SENT = (
    *("Authorization", "X-API-Key", "Content-Type", "Prefer", "Idempotency-Key", "If-None-Match", "Last-Event-ID"),
    *(REQUEST_ID, "traceparent"),
)
CORS_READ = (
    *("Location", "Link", "ETag", "Retry-After", "Preference-Applied", "Idempotent-Replayed", REQUEST_ID),
    *("RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
)


def create_app(settings: Settings | None = None, tracer: Tracer | None = None) -> FastAPI:
    """Make the ASGI app; without settings, as when a server calls it, it reads them itself."""
    settings = settings or Settings()
    configure_logging(settings.log_level, settings.log_format)
    tracer = tracer or open_tracer("api", f"{settings.core_host}:{settings.port}")
    link, metrics = AsyncLink(settings.redis_url), ProcessMetrics("api")
    gate, fleet = open_gate(settings), Fleet(link)
    store = JobStore(link, settings, bell_envelope(make_celery(settings)), gate)
    finder, rate_limiter = ApiKeyFinder(link), RateLimiter(settings)
    keys, own_jobs = KeyCache(finder), Jobs(store, fleet, settings, metrics, tracer)
    flushing = Flushing(metrics, link, own_jobs.measure_refusals)
    overviews = Overviews(link)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        own_jobs.completions.start()
        flushing.start()
        overviews.start()
        if settings.requires_keys:
            keys.start()
            await _warn_if_no_key(finder)
        yield
        await own_jobs.completions.close()
        await keys.close()
        await rate_limiter.close()
        await overviews.close()
        await flushing.close()
        await link.close()
        if gate is not None:
            await gate.close()
        if tracer is not None:
            await asyncio.to_thread(tracer.flush)

    app = FastAPI(
        title="Corelane",
        version=__version__,
        summary=SUMMARY,
        lifespan=lifespan,
        dependencies=[Depends(refuse_unknown_parameters)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        webhooks=deliveries.posted,
    )
    app.state.parts = Parts(
        settings,
        link,
        store,
        JobEvents(link),
        fleet,
        Rollout(link),
        DeliveryLog(link),
        own_jobs,
        metrics,
        flushing,
        FileStore(link, gate),
        BatchStore(link, gate),
        open_storage(settings.files_url, settings.files_root),
        Bulk(own_jobs.submitter, store, settings),
        Audit(link),
        overviews,
        History(link),
        DryRuns(own_jobs.submitter, RateStore(link), settings),
    )
    of_jobs = (bulk, jobs, results, events, failed_items, deliveries)
    for each in (*of_jobs, fleet_routes, history, usage, rollout, audit, health, files, batches, answers):
        app.include_router(each.router)
    add_pages(app)
    if settings.console:
        add_console(app, SessionStore(link), keys)
    add_error_handlers(app)
    describe_common_responses(app, requires_keys=settings.requires_keys)
    # The innermost layer comes first.
    owners = Owners(link, settings.max_owners)
    app.add_middleware(
        InnerLayer,
        settings=settings,
        keys=keys,
        owners=owners,
        rate_limiter=rate_limiter,
        console=ConsoleDoor(SessionStore(link)),
        refuse_page=refuse_page if settings.console else refuse,
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_SENT,
            expose_headers=CORS_READ,
            max_age=3600,
        )
    app.add_middleware(OuterLayer, settings=settings, recorder=metrics.recorder)
    if tracer is not None:
        app.add_middleware(TraceLayer, tracer=tracer)
    return app


async def _warn_if_no_key(finder: ApiKeyFinder) -> None:
    """Say in the log how to make the first key, if there is none."""
    try:
        if not await finder.any_active():
            log.warning(
                "no_api_key_yet", advice="make one: corelane keys create --name NAME --scope submit --scope read"
            )
    except Unavailable as error:
        log.warning("keys_wait_for_store", detail=error.detail)
