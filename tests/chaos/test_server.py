"""The Redis of a chaos run fails as it should, and comes back with everything it acknowledged."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.chaos.server import RedisServer
from tests.conftest import free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, free_port())
    server.start()
    yield server
    server.stop()


def test_killed_server_comes_back_with_all_it_acknowledged(server: RedisServer) -> None:
    with server.client() as client:
        for n in range(300):
            client.rpush("list", n)
    server.kill()
    server.start()
    with server.client() as client:
        assert client.llen("list") == 300


def test_full_disk_refuses_writes_and_passes_when_there_is_room(server: RedisServer) -> None:
    def write_until_full() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            client.rpush("list", "x" * 1000)

    with server.client() as client:
        server.fill_disk()
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            write_until_full()
        server.free_disk()
        kept = client.llen("list")
        assert client.rpush("list", "x") == kept + 1
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
    server.kill()
    server.start()
    with server.client() as client:
        assert client.llen("list") == kept + 1


def test_full_memory_refuses_writes_and_passes(server: RedisServer) -> None:
    with server.client() as client:
        server.limit_memory(1)
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            client.set("key", "value")
        server.limit_memory(0)
        client.set("key", "value")


def test_frozen_server_is_silent_and_goes_on(server: RedisServer) -> None:
    with server.client() as client:
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
        client.ping()
