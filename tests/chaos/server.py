"""The Redis of a chaos run: killed, stopped, frozen, out of disk, out of memory, and back.

It runs with ``appendfsync always``, the setting under which nothing that was accepted may be lost. The disk is filled
by a limit on the size of its files (RLIMIT_FSIZE): an ordinary user may set it on a running process, and the server
sees a failed write either way. A server of that setting ends itself when a write fails, so for the time of a full disk
it runs at ``everysec``, and is not killed.
"""

import resource
from typing import Any

from corelane.cli.redis_server import server_argv
from corelane.engine.cores import die_with_parent as die_with_parent
from tests.tools.redis import admin_url, client_of, server_binary, service_url, users_file
from tests.tools.servers import RedisNode
from tests.tools.waiting import eventually

#: A redis-py client that decodes. Its declared types mix bytes and text, so none is better than those.
Raw = Any

#: Bytes that fit on the full disk; less than a second of load.
LAST_ROOM_BYTES = 16_384


class RedisServer(RedisNode):
    """One Redis with its append-only file; keeps its port over all its lives."""

    @property
    def url(self) -> str:
        """Return its URL, as the service gets it."""
        return service_url(self.port)

    def client(self) -> Raw:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(admin_url(self.url), 3)

    def argv(self, *more: str) -> list[str]:
        """Return the command that runs it."""
        own = server_argv(server_binary(), self.folder, self.port, users_file(self.folder))
        own += ["--logfile", str(self.folder / "redis.log"), "--appendfsync", "always"]
        return [*own, "--notify-keyspace-events", "Kh", *more]

    def fill_disk(self) -> None:
        """Let its append-only file grow by almost nothing more."""
        with self.client() as client:
            client.config_set("appendfsync", "everysec")
            size = max(file.stat().st_size for file in (self.folder / "appendonlydir").glob("*.incr.aof"))
        self._limit_files(size + LAST_ROOM_BYTES)

    def free_disk(self) -> None:
        """Room again; returns once the server has written what it owes."""
        self._limit_files(resource.RLIM_INFINITY)
        with self.client() as client:
            eventually(lambda: client.info("persistence")["aof_last_write_status"] == "ok")
            client.config_set("appendfsync", "always")

    def limit_memory(self, limit_bytes: int) -> None:
        """Refuse writes beyond so many bytes; 0 ends it."""
        with self.client() as client:
            client.config_set("maxmemory", limit_bytes)

    def _limit_files(self, most_bytes: int) -> None:
        resource.prlimit(self._running().pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
