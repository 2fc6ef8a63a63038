from collections.abc import Iterator

import pytest
import redis
from pytest_httpserver import HTTPServer

from corelane.client import Client
from corelane.settings import Settings
from tests.corelane.both_clients import Awaited
from tests.corelane.stand_in import StandIn
from tests.corelane.store_bench import Bench


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


@pytest.fixture(scope="session")
def make_httpserver() -> Iterator[HTTPServer]:
    """Serve ``httpserver`` with threads: with one thread, a dropped connection holds up the next one."""
    server = HTTPServer(threaded=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def service(httpserver: HTTPServer) -> StandIn:
    return StandIn(httpserver)


@pytest.fixture(params=[Client, Awaited])
def client(service: StandIn, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Either client; what they do is the same."""
    with request.param(service.url, timeout_s=30) as client:
        yield client
