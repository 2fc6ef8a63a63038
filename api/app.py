"""The API application: routes, error table, limits, lifespan. Made anew by ``create_app``; nothing happens at
import.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI
from prometheus_fastapi_instrumentator import Instrumentator

from api.completions import Completions
from api.deps import Parts
from api.errors import add_error_handlers
from api.limits import BodyLimit
from api.routes import deliveries, fleet, health, jobs, rollout, uploads
from corelane import __version__
from corelane.broker import bell_envelope, make_celery
from corelane.log import configure_logging
from corelane.metrics import ApiMetrics
from corelane.settings import Settings
from corelane.store.async_link import AsyncLink
from corelane.store.delivery_log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.jobs import JobStore
from corelane.store.rollout import Rollout

SUMMARY = "Questions with their passages go in, answers with exact offsets come out: one or a million, nothing lost."


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI app; reads the settings itself where a server calls it without."""
    settings = settings or Settings()
    configure_logging(settings.log_level, settings.log_format)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts: Parts = app.state.parts
        parts.completions.start()
        yield
        await parts.completions.close()
        await link.close()

    link = AsyncLink(settings.redis_url)
    store = JobStore(link, settings, bell_envelope(make_celery(settings)))
    app = FastAPI(title="Corelane", version=__version__, summary=SUMMARY, lifespan=lifespan, webhooks=deliveries.posted)
    app.state.parts = Parts(
        settings, store, Fleet(link), Rollout(link), DeliveryLog(link), Completions(store, settings), ApiMetrics()
    )
    app.include_router(uploads.router)
    app.include_router(jobs.router)
    app.include_router(deliveries.router)
    app.include_router(fleet.router)
    app.include_router(rollout.router)
    app.include_router(health.router)
    add_error_handlers(app)
    Instrumentator(registry=app.state.parts.metrics.registry, excluded_handlers=["/metrics"]).instrument(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, max_upload_bytes=settings.max_upload_bytes)
    app.add_middleware(CorrelationIdMiddleware)
    return app
