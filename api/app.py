"""The API application: routes, error table, limits, lifespan. Made anew by ``create_app``; nothing happens at
import.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from prometheus_fastapi_instrumentator import Instrumentator
from starlette.middleware.cors import CORSMiddleware

from api.deps import Parts
from api.docs.openapi import describe_gate
from api.docs.swagger import add_pages
from api.errors import add_error_handlers
from api.jobs.wait import Completions
from api.middleware.auth import Gate
from api.middleware.body_limit import BodyLimit
from api.middleware.key_cache import Keyring
from api.middleware.parameters import refuse_unknown
from api.middleware.presence import Presences
from api.middleware.proxies import TrustedProxies
from api.middleware.rate_limit import Rates
from api.middleware.request_id import REQUEST_ID, Origins
from api.middleware.security_headers import SafeHeaders
from api.middleware.unread_body import Leftovers
from api.routes import answers, batches, deliveries, events, files, fleet, health, jobs, ndjson_jobs, results, rollout
from corelane import __version__
from corelane.broker.app import bell_envelope, make_celery
from corelane.errors import Unavailable
from corelane.log import configure_logging, get_logger
from corelane.metrics import ApiMetrics
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.batches import BatchStore
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.file_storage import open_storage
from corelane.store.files import FileStore
from corelane.store.fleet import Fleet
from corelane.store.jobs.events import JobEvents
from corelane.store.jobs.owners import Owners
from corelane.store.jobs.store import JobStore
from corelane.store.link.aio import AsyncLink
from corelane.store.rollout import Rollout

SUMMARY = "Questions with their passages go in, answers with exact offsets come out: one or a million, nothing lost."

log = get_logger(__name__)

#: What web pages of the origins allowed may send and read.
CORS_METHODS = ("GET", "POST", "PUT", "DELETE")
CORS_SENT = (
    *("Authorization", "X-API-Key", "Content-Type", "Prefer", "Idempotency-Key", "If-None-Match", "Last-Event-ID"),
    *(REQUEST_ID, "traceparent"),
)
CORS_READ = (
    *("Location", "Link", "ETag", "Retry-After", "Preference-Applied", "Idempotent-Replayed", REQUEST_ID),
    *("RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI app; reads the settings itself where a server calls it without."""
    settings = settings or Settings()
    configure_logging(settings.log_level, settings.log_format)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts: Parts = app.state.parts
        parts.completions.start()
        if settings.requires_keys:
            keyring.start()
            await _say_how_to_make_a_key(finder)
        yield
        await parts.completions.close()
        await keyring.close()
        await rates.close()
        await link.close()

    link = AsyncLink(settings.redis_url)
    store, finder, rates = (
        JobStore(link, settings, bell_envelope(make_celery(settings))),
        ApiKeyFinder(link),
        Rates(settings),
    )
    keyring = Keyring(finder)
    app = FastAPI(
        title="Corelane",
        version=__version__,
        summary=SUMMARY,
        lifespan=lifespan,
        dependencies=[Depends(refuse_unknown)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        webhooks=deliveries.posted,
    )
    completions = Completions(store, settings)
    app.state.parts = Parts(
        settings,
        store,
        JobEvents(link),
        Fleet(link),
        Rollout(link),
        DeliveryLog(link),
        completions,
        ApiMetrics(),
        FileStore(link),
        BatchStore(link),
        open_storage(settings.files_url, settings.files_root),
    )
    app.include_router(ndjson_jobs.router)
    app.include_router(jobs.router)
    app.include_router(results.router)
    app.include_router(events.router)
    app.include_router(deliveries.router)
    app.include_router(fleet.router)
    app.include_router(rollout.router)
    app.include_router(health.router)
    app.include_router(files.router)
    app.include_router(batches.router)
    app.include_router(answers.router)
    add_pages(app)
    add_error_handlers(app)
    describe_gate(app, requires_keys=settings.requires_keys)
    _add_layers(app, settings, keyring, Owners(link, settings.max_owners), rates)
    return app


def _add_layers(app: FastAPI, settings: Settings, keyring: Keyring, owners: Owners, rates: Rates) -> None:
    """What a request passes before its route, the innermost first."""
    app.add_middleware(Presences)
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_body_bytes,
        max_upload_bytes=settings.max_upload_bytes,
        max_file_bytes=settings.max_file_bytes,
        timeout_s=settings.body_timeout_s,
    )
    app.add_middleware(Gate, settings=settings, keyring=keyring, owners=owners, rates=rates)
    Instrumentator(registry=app.state.parts.metrics.registry, excluded_handlers=["/metrics"]).instrument(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_SENT,
            expose_headers=CORS_READ,
            max_age=3600,
        )
    app.add_middleware(SafeHeaders, allowed_hosts=settings.allowed_hosts)
    if settings.trusted_hops:
        app.add_middleware(TrustedProxies, hops=settings.trusted_hops)
    app.add_middleware(Leftovers)
    app.add_middleware(Origins)


async def _say_how_to_make_a_key(finder: ApiKeyFinder) -> None:
    """Tell whoever reads the log, if nobody could ask anything yet."""
    try:
        if not await finder.any_active():
            log.warning(
                "no_api_key_yet", advice="make one: corelane keys create --name NAME --scope submit --scope read"
            )
    except Unavailable as error:
        log.warning("keys_wait_for_store", detail=error.detail)
