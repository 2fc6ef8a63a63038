"""A fleet for chaos: API, keeper and workers as processes of their own, each with a proxy before Redis, a wall clock
that can be moved, and a relauncher. Killed parts come back as they would under a supervisor.
"""

import contextlib
import mmap
import os
import signal
import struct
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
from tests.chaos.proxy import Network, Proxy
from tests.chaos.server import RedisServer, die_with_parent
from tests.conftest import free_port

PRELOAD = Path(__file__).parent / "preload"

#: Host part of the cores' names.
HOST = "chaos"

#: A part that ended comes back after this pause, in seconds: what `serve` waits at first.
RELAUNCH_S = 0.2

#: A fleet is ready well within this, in seconds.
READY_S = 120

#: So that work is in flight when a fault strikes, the null engine takes its time, and jobs sent as lines are fed in
#: pieces.
SETTINGS = {
    "CORELANE_TARGET": "null",
    "CORELANE_MODEL": "null",
    "CORELANE_NULL_BATCH_S": "0.1",
    "CORELANE_FEED_TOKENS": "4000",
    "CORELANE_CORE_HOST": HOST,
    "CORELANE_LOG_FORMAT": "json",
}


@dataclass
class Part:
    """One process of the fleet, over all its lives."""

    name: str
    argv: list[str]
    env: dict[str, str]
    proxy: Proxy
    log: Path
    clock: mmap.mmap
    process: subprocess.Popen[bytes]
    #: Environment of its next life only: fault points.
    armed: dict[str, str] = field(default_factory=dict)
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

    def move_clock(self, seconds: float) -> None:
        """Its time of day is off by so much from now on, for all its processes."""
        self.clock[:8] = struct.pack("d", seconds)


class ChaosFleet:
    """Started whole; ``stop`` ends everything."""

    def __init__(self, folder: Path, cores: int, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.redis = RedisServer(_made(folder / "redis"), free_port())
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
        self._relauncher.join(30)
        for part in self.parts.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.process.wait(10)
            for orphan in processes_with(f"CHAOS_CLOCK={self.folder / part.name}.clock"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
            part.clock.close()
        self.redis.stop()
        self.network.close()

    def client(self, key: str | None = None) -> Client:
        """A client of this fleet that repeats nothing."""
        return Client(self.url, key, max_retries=0, timeout_s=10)

    @property
    def workers(self) -> list[Part]:
        """The parts that serve a core."""
        return [part for part in self.parts.values() if part.core is not None]

    def child_of(self, part: Part) -> int | None:
        """The process that serves the part's core now, if it is up; asks Redis, not the proxy."""
        try:
            with self.redis.client() as raw:
                state, pid = raw.hmget(f"cl:core:{part.core}", "state", "pid")
        except redis.RedisError:
            return None
        if state not in ("idle", "busy") or pid is None or parent_of(int(pid)) != part.pid:
            return None
        return int(pid)

    def is_whole(self) -> bool:
        """Whether every core is up and a question would be answered."""
        try:
            with self.client() as client:
                return client.ready() and all(self.child_of(part) is not None for part in self.workers)
        except (CorelaneError, redis.RedisError):
            return False

    def wait_whole(self, seconds: float) -> None:
        """Until it is whole; raises TimeoutError with the ends of all logs."""
        deadline = time.monotonic() + seconds
        while not self.is_whole():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fleet is not whole after {seconds:g} s\n{self.last_words()}")
            time.sleep(0.1)

    def strange_ends(self) -> list[str]:
        """Parts that ended though nobody told them to, and no fault point made them."""
        found = []
        for part in self.parts.values():
            log = part.log.read_text(errors="replace")
            allowed = Counter({-signal.SIGKILL: log.count("fault point ")})
            for status, count in (Counter(part.unasked) - allowed).items():
                found.append(f"{part.name} ended unasked with status {status}, {count} times; {log[-1500:]}")
        return found

    def last_words(self, most: int = 1500) -> str:
        """The end of every part's log."""
        logs = [part.log for part in self.parts.values()]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-most:]}" for log in logs)

    def _add(self, name: str, argv: list[str]) -> None:
        proxy = self.network.proxy(self.redis.port)
        clock = self.folder / f"{name}.clock"
        clock.write_bytes(struct.pack("d", 0.0))
        with clock.open("r+b") as file:
            shift = mmap.mmap(file.fileno(), 8)
        path = os.pathsep.join(filter(None, [str(PRELOAD), os.environ.get("PYTHONPATH", "")]))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CORELANE_")}
        env = clean | self._settings | {"PYTHONPATH": path, "CHAOS_CLOCK": str(clock)}
        env["CORELANE_REDIS_URL"] = f"redis://127.0.0.1:{proxy.port}/0"
        log = self.folder / f"{name}.log"
        self.parts[name] = Part(name, argv, env, proxy, log, shift, self._launch(argv, env, log))

    def _launch(self, argv: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                argv,
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

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
                    armed, part.armed, part.asked = part.armed, {}, False
                    part.process = self._launch(part.argv, part.env | armed, part.log)


def parent_of(pid: int) -> int | None:
    """The parent of a process, or None if there is no such process (any more)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = status.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(parent)


def processes_with(setting: str) -> list[int]:
    """Processes that have ``NAME=value`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
