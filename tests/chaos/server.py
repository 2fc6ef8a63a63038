"""The Redis of a chaos run: killed, stopped, frozen, out of disk, out of memory, and back.

It runs with ``appendfsync always``, the setting under which nothing that was accepted may be lost. The disk is filled
by a limit on the size of its files (RLIMIT_FSIZE): an ordinary user may set it on a running process, and the server
sees a failed write either way. A server of that setting ends itself when a write fails, so for the time of a full disk
it runs at ``everysec``, and is not killed.
"""

import os
import resource
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from corelane.cli.redis_server import server_argv
from corelane.engine.cores import die_with_parent as die_with_parent
from tests.redis_for_tests import admin_url, server_binary, service_url, users_file
from tests.waiting import eventually

#: A redis-py client that decodes. Its declared types mix bytes and text, so none is better than those.
Raw = Any

#: Bytes that fit on the full disk; less than a second of load.
LAST_ROOM_BYTES = 16_384

#: A server that starts reads its file well within this, in seconds.
START_S = 30


def plain_client(url: str) -> Raw:
    """Return a client that repeats nothing and waits for nothing long."""
    return redis.Redis.from_url(
        url,
        socket_timeout=3,
        socket_connect_timeout=3,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )


class RedisServer:
    """One Redis with its append-only file; keeps its port over all its lives."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.url = service_url(port)
        self.folder = folder
        self._argv = server_argv(server_binary(), folder, port, users_file(folder))
        self._argv += ["--appendfsync", "always", "--notify-keyspace-events", "Kh"]
        self._process: subprocess.Popen[bytes] | None = None
        # The parent that a process dies with is a thread: one that lasts.
        self._launcher = ThreadPoolExecutor(1)

    def client(self) -> Raw:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return plain_client(admin_url(self.url))

    def start(self) -> None:
        """Start it; returns once it has read its file and answers."""
        self._process = self._launcher.submit(self._launch).result()
        with self.client() as client:
            eventually(client.ping, START_S, (self.folder / "redis.log").read_text)

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        self._running().wait(60)

    def shut_down(self) -> None:
        """Ask it to end in order, everything on disk."""
        self._signal(signal.SIGTERM)
        self._running().wait(60)

    def freeze(self) -> None:
        """Stop it in its tracks; connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

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
            eventually(lambda: client.info("persistence")["aof_last_write_status"] == "ok", START_S)
            client.config_set("appendfsync", "always")

    def limit_memory(self, limit_bytes: int) -> None:
        """Refuse writes beyond so many bytes; 0 ends it."""
        with self.client() as client:
            client.config_set("maxmemory", limit_bytes)

    def stop(self) -> None:
        """For the end of a run."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.terminate()
            self._process.wait(60)
        self._launcher.shutdown()

    def _launch(self) -> subprocess.Popen[bytes]:
        with (self.folder / "redis.log").open("ab") as log:
            return subprocess.Popen(
                self._argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                restore_signals=False,  # Python ignores SIGXFSZ; so must a server whose disk is full
                preexec_fn=die_with_parent,
            )

    def _limit_files(self, most_bytes: int) -> None:
        resource.prlimit(self._running().pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

    def _signal(self, sign: signal.Signals) -> None:
        os.kill(self._running().pid, sign)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("Redis was not started")
        return self._process
