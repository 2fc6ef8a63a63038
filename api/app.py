"""The API application: routes, error handlers, layers, lifespan. Importing this module creates nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware

from api.deps import refuse_unknown_parameters
from api.docs.openapi import describe_common_responses
from api.docs.swagger import add_pages
from api.errors import add_error_handlers
from api.middleware.edge import InnerLayer, OuterLayer
from api.plugin import ApiPlugin
from api.request_facts import REQUEST_ID
from api.routes import (
    deliveries,
    dialects,
    events,
    health,
    job_lines,
    jobs,
    pauses,
    results,
    rollout,
    tasks,
    tei,
    webhook_secrets,
)
from api.routes import fleet as fleet_routes
from api.state import AppState
from corelane import __version__
from corelane.errors import SetupError, StorageFailed, Unavailable, error_codes
from corelane.log import configure_logging, get_logger
from corelane.metrics.definitions import HTTP_REQUESTS, PROBLEMS
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyFinder
from corelane.store.file_storage import open_storage
from corelane.tracing import Tracer, open_tracer

SUMMARY = "Items go in, results come out: one or a million, nothing lost."

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


#: Statuses that are counted from 0 when the process starts, so that the first errors are seen as an increase.
BORN_STATUSES = ("500", "503")

#: The modules of core's hot routes, the most frequent first; and the modules of routes that FastAPI serves.
HOT = (job_lines, jobs, health, dialects, tei)
ROUTES = (jobs, results, events, deliveries, webhook_secrets, fleet_routes, rollout, pauses, health, tasks, tei)


def create_app(settings: Settings | None = None, tracer: Tracer | None = None) -> FastAPI:
    """Make the ASGI app. Without ``settings``, as when a server calls this, read them from the environment."""
    settings = settings or Settings()
    configure_logging(settings.log_level, settings.log_format)
    tracer = tracer or open_tracer("api", f"{settings.core_host}:{settings.port}")
    state = AppState(settings, tracer)
    plugins = installed(ApiPlugin)
    for plugin in plugins:
        state.add(plugin.api_parts(state))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.start()
        if settings.requires_keys:
            await _warn_if_no_key(state.key_finder)
        checking = asyncio.create_task(_check_storage(settings))
        yield
        checking.cancel()
        await state.close()
        if tracer is not None:
            await asyncio.to_thread(tracer.flush)

    app = FastAPI(
        title="Corelane",
        version=__version__,
        summary=SUMMARY,
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        lifespan=lifespan,
        dependencies=[Depends(refuse_unknown_parameters)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        webhooks=deliveries.posted,
        # Corelane has its own traces, metrics and logs.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.app_state = state
    recorder = state.metrics.recorder
    # A plain route is not included by FastAPI, which would wrap it.
    hot = [route for each in HOT for route in each.hot.routes]
    app.router.routes += hot
    routers = [each.router for each in ROUTES] + [each for plugin in plugins for each in plugin.routers()]
    for router in routers:
        app.include_router(router)
    for route in (*hot, *(route for router in routers for route in router.routes)):
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method, status in product(route.methods or (), BORN_STATUSES):
                recorder.add(HTTP_REQUESTS, 0, route.path, method, status)
    for code in error_codes():
        recorder.add(PROBLEMS, 0, code)
    add_pages(app)
    for plugin in plugins:
        plugin.add_to_app(app, state)
    add_error_handlers(app)
    describe_common_responses(app, requires_keys=settings.requires_keys)
    # The innermost layer comes first.
    sections = [each for plugin in plugins for each in plugin.sections(state)]
    app.add_middleware(
        InnerLayer,
        settings=settings,
        keys=state.keys,
        rates=state.rate_limiter,
        body_limits={path: most for plugin in plugins for path, most in plugin.body_limits(settings).items()},
        sections=sections,
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
    app.add_middleware(OuterLayer, settings=settings, recorder=recorder)
    for layer in (layer for plugin in plugins for layer in plugin.asgi_layers(state)):
        app.add_middleware(layer.cls, *layer.args, **layer.kwargs)
    return app


async def _check_storage(settings: Settings) -> None:
    """Log if the storage of files at ``files_url`` fails. Requests that need the storage are refused meanwhile."""
    if settings.files_url is not None:
        try:
            await asyncio.to_thread(open_storage(settings.files_url, settings.files_root).check)
        except (StorageFailed, SetupError) as error:
            log.error("storage_fails", detail=error.detail)


async def _warn_if_no_key(finder: ApiKeyFinder) -> None:
    """Log how to make the first key, if there is none."""
    try:
        if not await finder.any_active():
            log.warning(
                "no_api_key_yet", advice="make one: corelane keys create --name NAME --scope submit --scope read"
            )
    except Unavailable as error:
        log.warning("keys_wait_for_store", detail=error.detail)
