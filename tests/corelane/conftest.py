from collections.abc import Iterator

import pytest
import redis
from pytest_httpserver import HTTPServer

from corelane.cli.local import running_service
from corelane.client import Client
from corelane.domain.jobs import DEFAULT_TASK
from corelane.settings import Settings
from corelane.tasks.registry import TASKS
from tests.conftest import free_port
from tests.corelane.both_clients import Awaited
from tests.corelane.stand_in import StandIn
from tests.corelane.store_bench import Bench
from tests.tools.waiting import eventually


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


@pytest.fixture(scope="session")
def null_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a version of each task."""
    port, others = free_port(), [name for name in TASKS if name != DEFAULT_TASK]
    with running_service(tmp_path_factory.mktemp("null"), target="null", model="null", cores=1, port=port) as url:
        with Client(url) as client:
            for name in others:
                client.load_model(f"{name}@1")
            ready = {"null@0", *(f"{name}@1" for name in others)}
            eventually(lambda: {model["id"] for model in client.models() if model["cores"]} == ready, 60)
        yield url
