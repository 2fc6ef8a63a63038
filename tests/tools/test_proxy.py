"""The proxy does to connections what it says."""

import os
import socket
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.tools.fleet import ports_of
from tests.tools.proxy import Proxy, proxy_before

#: Without an answer for this long, in seconds, a connection is silent.
SILENT_S = 2


@pytest.fixture
def proxy(raw: redis.Redis) -> Iterator[Proxy]:
    with proxy_before(raw.get_connection_kwargs()["port"]) as proxy:
        yield proxy


def connect(proxy: Proxy, timeout_s: float = 30) -> redis.Redis:
    return redis.Redis(port=proxy.port, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))


def test_bytes_pass_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.set("key", "v" * 300_000)
        assert client.get("key") == b"v" * 300_000


def test_cut_connections_are_reset_and_new_ones_work(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as old, connect(proxy) as new:
        old.sendall(b"PING\r\n")
        assert old.recv(100) == b"+PONG\r\n"
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            old.recv(100)
        assert new.ping()


def test_only_connections_of_chosen_ports_are_struck(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as one, connect(proxy) as other:
        other.ping()
        port = one.getsockname()[1]
        assert port in ports_of([os.getpid()])
        proxy.stall([port])
        one.sendall(b"PING\r\n")
        assert other.ping()
        proxy.flow([port])
        assert one.recv(100) == b"+PONG\r\n"
        assert proxy.cut([port]) == 1
        assert other.ping()


def test_half_open_connection_is_silent_for_ever_and_new_ones_work(proxy: Proxy) -> None:
    with connect(proxy, SILENT_S) as old, connect(proxy) as new:
        old.ping()
        assert proxy.half_open() == 1
        with pytest.raises(redis.TimeoutError):
            old.ping()
        assert new.ping()
        assert proxy.half_open() == 1


def test_stalled_connection_goes_on_where_it_stood(proxy: Proxy) -> None:
    with connect(proxy, SILENT_S) as client, connect(proxy) as other:
        client.ping()
        proxy.stall()
        with pytest.raises(redis.TimeoutError):
            client.set("key", "kept")
        proxy.flow()
        assert other.ping()


def test_redis_that_is_away_looks_like_a_reset(raw: redis.Redis) -> None:
    with proxy_before(1) as proxy, connect(proxy) as client, pytest.raises(redis.ConnectionError):
        client.ping()
