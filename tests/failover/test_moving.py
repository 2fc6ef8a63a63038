"""Without Sentinels: an address that moves to another server is followed as soon as the old one refuses."""

import asyncio
import threading
from pathlib import Path

import pytest
from kombu import Queue

from corelane.broker.app import make_celery
from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.link.link import AsyncLink
from tests.tools.proxy import proxy_before
from tests.tools.servers import RedisNode, running
from tests.tools.waiting import eventually


def demote(node: RedisNode, primary: RedisNode) -> None:
    with node.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", primary.port)


def test_links_and_celery_leave_a_server_that_became_a_replica(tmp_path: Path) -> None:
    old, new = (RedisNode(tmp_path / name) for name in ("old", "new"))
    with running(old, new), proxy_before(old.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        link, app = Link(url), make_celery(Settings(redis_url=url))
        failures: list[BaseException] = []

        def consume() -> None:
            queues = [Queue("core.x/0")]
            with app.connection_for_read() as connection, connection.Consumer(queues=queues, callbacks=[print]):
                try:
                    connection.drain_events(timeout=60)
                except connection.connection_errors as error:
                    failures.append(error)

        consumer = threading.Thread(target=consume, daemon=True)

        async def steps() -> None:
            own = AsyncLink(url)
            assert await own("SET", "x", "1")
            assert link("SET", "y", "1")
            consumer.start()
            with old.client() as client:
                await asyncio.to_thread(eventually, lambda: client.info("clients")["blocked_clients"] == 1)
            proxy.upstream_port = new.port
            demote(old, new)
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                await own("SET", "x", "2")
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                link("SET", "y", "2")
            assert await own("SET", "x", "2")
            assert link("SET", "y", "2")
            await own.close()

        asyncio.run(steps())
        link.close()
        consumer.join(60)
        assert failures
        with new.client() as client:
            assert client.mget("x", "y") == ["2", "2"]
