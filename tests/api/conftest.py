"""The API alone, on a real Redis: served by Hypercorn on a socket, or as an app; what cores do is done by the test."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import redis
import uvloop
from fastapi.testclient import TestClient

from api.app import create_app
from api.serve import KEEP_ALIVE_S, make_config, serve
from corelane.settings import Settings
from tests.api.office import Office, open_office
from tests.corelane.store_bench import Bench
from tests.tools.keys import add_keys, as_owner


@dataclass
class Service:
    """A running API, and the store behind it."""

    url: str
    http: httpx2.Client
    bench: Bench


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Leave out the console, half of what it takes to make the app, unless the file says that it asks for its pages."""
    return settings.model_copy(update={"console": getattr(request.module, "CONSOLE", False)})


@pytest.fixture
def service(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Service]:
    yield from run_service(settings, raw, bell)


@pytest.fixture
def guarded(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Service]:
    """Yield a service that checks keys; the client has the key of ``public``, and ``other`` has one too."""
    for service in run_service(add_keys(settings, "public", "other"), raw, bell):
        service.http.headers.update(as_owner("public"))
        yield service


def run_service(
    settings: Settings, raw: redis.Redis, bell: str, keep_alive_s: float = KEEP_ALIVE_S
) -> Iterator[Service]:
    """Serve the API, with one core that does what a test says."""
    with served(settings, keep_alive_s) as url, httpx2.Client(base_url=url, timeout=60) as http:
        bench = Bench(settings, raw, bell)
        bench.core("a/0")
        yield Service(url, http, bench)


@contextmanager
def served(settings: Settings, keep_alive_s: float = KEEP_ALIVE_S) -> Iterator[str]:
    """Serve the API from a thread of the name ``api``; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = make_config(settings, f"fd://{listener.detach()}", 0.1)
    config.keep_alive_timeout = keep_alive_s
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop, stop, app = runner.get_loop(), asyncio.Event(), create_app(settings)

    def run() -> None:
        with runner:
            runner.run(serve(app, config, stop.wait))

    thread = threading.Thread(target=run, name="api", daemon=True)
    thread.start()
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return create_app(Settings()).openapi()


@pytest.fixture
def app_settings(settings: Settings) -> Settings:
    """Return the settings of the app under test."""
    return settings


@pytest.fixture
def api(app_settings: Settings) -> Iterator[TestClient]:
    """Yield a client of the app."""
    with TestClient(create_app(app_settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def office(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Office]:
    with open_office(settings, raw, bell) as office:
        yield office
