"""A fleet for chaos: API, keeper and workers as processes of their own, each with a proxy before Redis, a wall clock
that can be moved, and a relauncher. Killed parts come back as they would under a supervisor.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import redis

from corelane.client import Client
from corelane.domain.dispatch import Core
from corelane.errors import CorelaneError
from tests.chaos.processes import HOST, SETTINGS, Clock, child_of, environment, kill_all_with, launch
from tests.chaos.proxy import Network, Proxy
from tests.chaos.server import RedisServer
from tests.conftest import free_port
from tests.tools.redis import at_port
from tests.tools.waiting import eventually

#: A part that ended comes back after this pause, in seconds: what `serve` waits at first.
RELAUNCH_S = 0.2

#: A fleet is ready well within this, in seconds.
READY_S = 120


@dataclass
class Part:
    """One process of the fleet, over all its lives."""

    name: str
    argv: list[str]
    env: dict[str, str]
    proxy: Proxy
    log: Path
    clock: Clock
    process: subprocess.Popen[bytes]
    #: How each life ended that nobody had asked to end, as exit statuses.
    unasked: list[int] = field(default_factory=list)
    asked: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def core(self) -> Core | None:
        """The core it serves, if it is a worker."""
        return Core(HOST, int(self.name.removeprefix("core"))) if self.name.startswith("core") else None

    def end(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal that ends it; the relauncher brings it back."""
        self.asked = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sign)


class ChaosFleet:
    """Started whole; ``stop`` ends everything."""

    def __init__(self, folder: Path, cores: int, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.redis = RedisServer(folder / "redis")
        self.network = Network()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.parts: dict[str, Part] = {}
        self._settings = SETTINGS | dict(settings or {})
        self._over = threading.Event()
        self._relauncher = threading.Thread(target=self._relaunch, name="relauncher", daemon=True)
        self._cores = cores

    def start(self) -> None:
        """Start everything; returns once a question would be answered and every core is up."""
        self.redis.start()
        corelane = [sys.executable, "-m", "corelane"]
        self._add("keeper", [*corelane, "keeper"])
        self._add("api", [*corelane, "api", "--port", str(self.port)])
        for index in range(self._cores):
            self._add(f"core{index}", [*corelane, "worker", "--core", str(index)])
        self._relauncher.start()
        self.wait_whole(READY_S)

    def stop(self) -> None:
        """End every part, workers and all."""
        self._over.set()
        self._relauncher.join(60)
        for part in self.parts.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.process.wait(60)
            kill_all_with(f"CHAOS_CLOCK={part.clock.file}")
            part.clock.close()
        self.redis.stop()
        self.network.close()

    def client(self, key: str | None = None) -> Client:
        """Return a client of this fleet that repeats nothing."""
        return Client(self.url, key, patience_s=0, timeout_s=10)

    @property
    def workers(self) -> list[Part]:
        """The parts that serve a core."""
        return [part for part in self.parts.values() if part.core is not None]

    def child_of(self, part: Part) -> int | None:
        """Return the process that serves the part's core now, if it is up; asks Redis, not the proxy."""
        return child_of(self.redis.client(), part.core, part.pid)

    def is_whole(self) -> bool:
        """Whether every core is up and a question would be answered."""
        try:
            with self.client() as client:
                return client.ready() and all(self.child_of(part) is not None for part in self.workers)
        except (CorelaneError, redis.RedisError):
            return False

    def wait_whole(self, seconds: float) -> None:
        """Until it is whole; raises TimeoutError with the ends of all logs."""
        eventually(self.is_whole, seconds, self.last_words)

    def strange_ends(self) -> list[str]:
        """Parts that ended though nobody told them to."""
        found = []
        for part in self.parts.values():
            log = part.log.read_text(errors="replace")
            for status, count in Counter(part.unasked).items():
                found.append(f"{part.name} ended unasked with status {status}, {count} times; {log[-1500:]}")
        return found

    def last_words(self, most: int = 1500) -> str:
        """Return the end of every part's log."""
        logs = [part.log for part in self.parts.values()]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-most:]}" for log in logs)

    def _add(self, name: str, argv: list[str]) -> None:
        proxy, clock = self.network.proxy(self.redis.port), Clock(self.folder / f"{name}.clock")
        redis_url = at_port(self.redis.url, proxy.port)
        env = environment(self._settings | {"CORELANE_REDIS_URL": redis_url, "CHAOS_CLOCK": str(clock.file)})
        log = self.folder / f"{name}.log"
        self.parts[name] = Part(name, argv, env, proxy, log, clock, launch(argv, env, log))

    def _relaunch(self) -> None:
        due: dict[str, float] = {}
        while not self._over.wait(0.05):
            for part in self.parts.values():
                status = part.process.poll()
                if status is None:
                    continue
                if part.name not in due:
                    due[part.name] = time.monotonic() + RELAUNCH_S
                    if not part.asked:
                        part.unasked.append(status)
                elif time.monotonic() >= due[part.name]:
                    del due[part.name]
                    part.asked = False
                    part.process = launch(part.argv, part.env, part.log)
