"""A fleet for chaos as a user runs it: one `corelane serve`, which relaunches whatever is killed.

Either it has its own Redis, which it relaunches too; or it is given one of ours behind a proxy (``--redis``), whose
disk can be full and whose connections can be broken. The wall clock of each part can be moved.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson
import redis

from corelane.cli.redis_users import operator_url
from corelane.client import Client
from corelane.domain.dispatch import Core
from corelane.errors import CorelaneError
from tests.chaos.processes import (
    HOST,
    SETTINGS,
    Clock,
    child_of,
    environment,
    kill_all_with,
    launch,
    parent_of,
)
from tests.chaos.proxy import Network, Proxy
from tests.chaos.server import Raw, RedisServer
from tests.chaos.sockets import descendants, ports_of
from tests.conftest import free_port
from tests.tools.redis import at_port, client_of
from tests.tools.waiting import eventually

#: The service is ready well within this, in seconds.
READY_S = 120

#: Redis is back well within this once it was killed, in seconds.
RESTART_S = 60

#: How often a new Redis is looked for, in seconds.
FOLLOW_S = 0.1

#: Settings on top of those of every chaos fleet: webhooks go to this machine, are given up only after many attempts,
#: and an attempt is short.
SERVED = {
    "CORELANE_WEBHOOK_SECRET": "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "CORELANE_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CORELANE_WEBHOOK_RETRIES_S": ",".join(["0.5"] * 4 + ["1"] * 40),
    "CORELANE_WEBHOOK_TIMEOUT_S": "3",
}

#: What the log says of a part that ended.
ENDED = re.compile(r"(\w+) (?:was ended by (?:signal )?(\w+)|ended with status (\d+)); it is launched again")


class ServedRedis:
    """The Redis that `serve` started: it comes back by itself."""

    def __init__(self, fleet: "ServedFleet") -> None:
        self._fleet = fleet
        self._followed = 0

    @property
    def port(self) -> int:
        """Where it listens, in all its lives."""
        return urlsplit(self.url).port or 0

    @property
    def url(self) -> str:
        """Its URL with the operator's password."""
        return str(operator_url(self._fleet.known()))

    def client(self) -> Raw:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(self.url, 3)

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)

    def shut_down(self) -> None:
        """Ask it to end in order, everything on disk."""
        self._signal(signal.SIGTERM)

    def start(self) -> None:
        """Wait until it is back."""
        eventually(self._answers, RESTART_S, self._fleet.last_words)

    def _answers(self) -> bool:
        with self.client() as raw:
            return bool(raw.ping())

    def freeze(self) -> None:
        """Stop it in its tracks; connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def limit_memory(self, limit_bytes: int) -> None:
        """Refuse writes beyond so many bytes; 0 ends it."""
        self.start()
        with self.client() as client:
            client.config_set("maxmemory", limit_bytes)

    def follow(self) -> None:
        """Have a new life write before it answers, so that nothing accepted may be lost, and tell of writes."""
        pid = self._fleet.pid_of("redis")
        if pid == self._followed:
            return
        with contextlib.suppress(redis.RedisError), self.client() as raw:
            raw.config_set("appendfsync", "always")
            raw.config_set("notify-keyspace-events", "Kh")
            self._followed = pid

    def _signal(self, sign: signal.Signals) -> None:
        self._fleet.signal("redis", sign)


class ServedFleet:
    """Started whole; ``stop`` ends everything."""

    def __init__(self, folder: Path, cores: int, settings: Mapping[str, str] | None = None, proxied: bool = False):
        folder.mkdir(parents=True)
        self.folder = folder
        self.log = folder / "serve.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.cores = cores
        self.network: Network | None = None
        self.proxy: Proxy | None = None
        self.redis: RedisServer | ServedRedis = ServedRedis(self)
        self.process: subprocess.Popen[bytes] | None = None
        self.names = ["keeper", "deliveries", "api", "flower", *(f"core{index}" for index in range(cores))]
        self._settings = SETTINGS | SERVED | dict(settings or {})
        self._proxied = proxied
        self._clocks: dict[str, Clock] = {}
        self._over = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Start everything; returns once a question would be answered and every core is up."""
        argv = [sys.executable, "-m", "corelane", "serve", "--port", str(self.port), "--cores", str(self.cores)]
        argv += ["--data", str(self.folder / "data")]
        if self._proxied:
            self.redis = RedisServer(self.folder / "redis")
            self.redis.start()
            self.network = Network()
            self.proxy = self.network.proxy(self.redis.port)
            argv += ["--redis", at_port(self.redis.url, self.proxy.port)]
        for name in self.names:
            self._clocks[name] = Clock(self.folder / f"{name}.clock")
        ports = {name: str(free_port()) for name in ("CORELANE_FLOWER_PORT", "CORELANE_REDIS_PORT")}
        own = {"CHAOS_FOLDER": str(self.folder), **ports}
        self.process = launch(argv, environment(self._settings | own), self.log)
        eventually(self._is_ready, READY_S, self.last_words)
        if not self._proxied:
            self._follower.start()
        self.wait_whole(READY_S)

    def stop(self) -> int:
        """End everything; the exit status of `serve`."""
        self._over.set()
        if self._follower.is_alive():
            self._follower.join(60)
        status = -1
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                status = self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
        kill_all_with(f"CHAOS_FOLDER={self.folder}")
        for clock in self._clocks.values():
            clock.close()
        if isinstance(self.redis, RedisServer):
            self.redis.stop()
        if self.network is not None:
            self.network.close()
        return status

    def client(self, key: str | None = None) -> Client:
        """Return a client of this service that repeats nothing."""
        return Client(self.url, key, patience_s=0, timeout_s=10)

    def known(self) -> dict[str, Any]:
        """Return the notes of `serve` on itself and its parts; empty before it begins."""
        try:
            return dict(orjson.loads((self.folder / "data" / "parts.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def part(self, name: str) -> dict[str, Any]:
        """Return the notes of `serve` on a part; empty while there are none."""
        return dict(self.known().get("parts", {}).get(name, {}))

    def pid_of(self, name: str) -> int:
        """Return the process of a part; it may just have ended."""
        return int(self.part(name).get("pid", 0))

    def is_up(self, name: str) -> bool:
        """Whether `serve` takes the part for up, and it is not gone."""
        part = self.part(name)
        return bool(part.get("is_up")) and parent_of(int(part["pid"])) is not None

    def signal(self, name: str, sign: signal.Signals) -> None:
        """Send a signal to a part's process, if there is one."""
        if pid := self.pid_of(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)

    def ports_of(self, name: str) -> set[int]:
        """Return the local ports of a part's connections."""
        pid = self.pid_of(name)
        return ports_of([pid, *descendants(pid)])

    def core_of(self, name: str) -> Core:
        """Return the core that a worker serves."""
        return Core(HOST, int(name.removeprefix("core")))

    @property
    def workers(self) -> list[str]:
        """The parts that serve a core."""
        return [name for name in self.names if name.startswith("core")]

    def child_of(self, name: str) -> int | None:
        """Return the process that serves the part's core now, if it is up; asks Redis, not the proxy."""
        return child_of(self.redis.client(), self.core_of(name), self.pid_of(name))

    def is_back(self, name: str) -> bool:
        """Whether a part does its work, as far as can be told from outside."""
        if name.startswith("core"):
            return self.child_of(name) is not None
        if name == "redis":
            with contextlib.suppress(redis.RedisError), self.redis.client() as raw:
                return bool(raw.ping())
            return False
        if name == "api":
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(f"{self.url}/readyz", timeout=2).status_code == 200
            return False
        return self.is_up(name)

    def is_whole(self) -> bool:
        """Whether every part is back and a question would be answered."""
        try:
            with self.client() as client:
                return client.ready() and all(self.is_back(name) for name in self.names)
        except (CorelaneError, redis.RedisError):
            return False

    def wait_whole(self, seconds: float) -> None:
        """Until it is whole; raises TimeoutError with the end of the log."""

        def missing() -> str:
            return f"missing: {[name for name in self.names if not self.is_back(name)]}\n{self.last_words()}"

        eventually(self.is_whole, seconds, missing)

    def _is_ready(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"serve did not start\n{self.last_words()}")
        return bool(self.known().get("is_ready"))

    def move_clock(self, name: str, seconds: float) -> None:
        """Move the time of day of a part's processes by so much from now on."""
        self._clocks[name].move(seconds)

    def arm(self, name: str, points: str) -> None:
        """Fault points of the part's next life."""
        (self.folder / f"{name}.points").write_text(points)

    def ends(self) -> Counter[str]:
        """How often each part ended and how, as `serve` says: ``api SIGKILL``, ``keeper 1``."""
        log = self.log.read_text(errors="replace")
        return Counter(f"{part} {sign or status}" for part, sign, status in ENDED.findall(log))

    def points_reached(self) -> Counter[str]:
        """How often processes killed themselves at each fault point."""
        return Counter(re.findall(r"fault point ([\w.]+)", self.log.read_text(errors="replace")))

    def strange_ends(self, killed: Mapping[str, int], asked: Mapping[str, int]) -> list[str]:
        """Parts that ended otherwise than as they were killed or asked to, and `serve` itself if it did."""
        found = []
        if self.process is None or self.process.poll() is not None:
            found.append(f"serve itself has ended\n{self.last_words()}")
        points = self.points_reached().total()
        for end, count in self.ends().items():
            part, _, how = end.partition(" ")
            allowed = {"SIGKILL": killed.get(part, 0) + points, "SIGTERM": asked.get(part, 0), "0": asked.get(part, 0)}
            if count > allowed.get(how, 0):
                found.append(f"{part} ended with {how} {count} times, expected {allowed.get(how, 0)} times")
        return found

    def last_words(self, most: int = 4000) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-most:]

    def _follow(self) -> None:
        while not self._over.wait(FOLLOW_S):
            if isinstance(self.redis, ServedRedis):
                self.redis.follow()
