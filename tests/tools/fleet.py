"""Fleets for tests: `corelane serve` as a user starts it, and all that a test may do to its parts.

A fleet starts its own Redis, or is given one, perhaps behind a proxy; and it may stand on a host of its own. The parts
of a *shaken* one have clocks that can be moved, and can be told to kill themselves at a point of
``preload/kill_points.py``; its own Redis has each write on disk before it answers, so that nothing that was accepted
may be lost.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx2
import redis

from corelane.cli.redis_users import operator_url
from corelane.client import Client
from corelane.domain.dispatch import Core
from corelane.engine.cores import cpu_slots, die_with_parent
from corelane.errors import CorelaneError
from corelane.settings import Settings
from tests.conftest import free_port
from tests.tools.proxy import Proxy
from tests.tools.redis import at_port, client_of
from tests.tools.servers import DurableRedis
from tests.tools.waiting import WITHIN_S, eventually

FLOWER = ("corelane", "flower-password-for-tests")
WEBHOOK_SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

#: A fleet is ready, and has stopped, well within this, in seconds.
READY_S, STOP_S = 120, 90

PRELOAD = Path(__file__).parent / "preload"

#: Webhooks go to this machine.
HOOKS = {"CORELANE_WEBHOOK_SECRET": WEBHOOK_SECRET, "CORELANE_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}

#: Settings of a shaken fleet: the null engine takes its time, so that work is in flight when a fault strikes; an
#: attempt of a webhook is short, and given up only after many.
SHAKEN = HOOKS | {
    "CORELANE_TARGET": "null",
    "CORELANE_MODEL": "null",
    "CORELANE_NULL_BATCH_S": "0.1",
    "CORELANE_FEED_TOKENS": "4000",
    "CORELANE_LOG_FORMAT": "json",
    "CORELANE_WEBHOOK_RETRIES_S": ",".join(["0.5"] * 4 + ["1"] * 40),
    "CORELANE_WEBHOOK_TIMEOUT_S": "3",
}

#: What the log says of a part that ended.
ENDED = re.compile(r"(\w+) (?:was ended by (?:signal )?(\w+)|ended with status (\d+)); it is launched again")


class Runs(Protocol):
    """A host that commands can run on."""

    def command(self, *argv: str) -> list[str]:
        """Return the command that runs one there."""


class OwnRedis:
    """The Redis that `serve` started: it comes back by itself."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet

    @property
    def url(self) -> str:
        """Its URL with the operator's password, if it has one."""
        return str(operator_url(self._fleet.noted()))

    def client(self) -> Any:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(self.url, 3)

    def start(self) -> None:
        """Wait until it is back."""
        eventually(lambda: self.client().ping(), why=self._fleet.last_words)

    def kill(self) -> None:
        self._fleet.signal("redis", signal.SIGKILL)

    def shut_down(self) -> None:
        self._fleet.signal("redis", signal.SIGTERM)

    def freeze(self) -> None:
        self._fleet.signal("redis", signal.SIGSTOP)

    def thaw(self) -> None:
        self._fleet.signal("redis", signal.SIGCONT)

    def limit_memory(self, limit_bytes: int) -> None:
        """Refuse writes beyond so many bytes; 0 ends it."""
        self.start()
        with self.client() as client:
            client.config_set("maxmemory", limit_bytes)


class Fleet:
    """A `corelane serve` with all its parts, from its launch on; ``wait_ready`` returns once it would answer."""

    def __init__(
        self,
        data: Path,
        *options: str,
        settings: Mapping[str, str],
        proxied: bool = False,
        shaken: bool = False,
        clock_s: float = 0,
        on: Runs | None = None,
    ) -> None:
        """Launch it. ``proxied`` gives it a Redis behind a proxy; the clock of a host is off by ``clock_s``."""
        data.mkdir(parents=True, exist_ok=True)
        if "--cores" not in options and "--roles" not in options:
            options = ("--cores", str(min(2, len(cpu_slots()))), *options)
        self.cores = int(options[options.index("--cores") + 1]) if "--cores" in options else 0
        self.data, self.log = data, data / "serve.log"
        env = {
            "CORELANE_CORE_HOST": "testhost",
            **{f"CORELANE_{name}PORT": str(free_port()) for name in ("", "FLOWER_", "REDIS_")},
            **settings,
        }
        self.host = env["CORELANE_CORE_HOST"]
        self.artifacts = Path(env.get("CORELANE_ARTIFACTS_DIR", data / "artifacts"))
        self.url = self.flower_url = ""
        self.proxy: Proxy | None = None
        self.redis: DurableRedis | OwnRedis = OwnRedis(self)
        argv = [sys.executable, "-m", "corelane", "serve", "--data", str(data), *options]
        if proxied:
            self.redis = DurableRedis(data / "given")
            self.redis.start()
            self.proxy = Proxy(self.redis.port)
            argv += ["--redis", at_port(self.redis.url, self.proxy.port)]
        if shaken:
            env |= preloaded(CHAOS_FOLDER=str(data))
        if clock_s:
            env |= preloaded(CHAOS_CLOCK=str(data / "clock"))
            set_clock(data / "clock", clock_s)
        self.log.write_bytes(b"")
        self.process = launch(on.command(*argv) if on else argv, os.environ | env, self.log)

    def wait_ready(self) -> "Fleet":
        """Return once a question would be answered; end everything where it does not come to that."""
        try:
            eventually(self._is_ready, READY_S, self.last_words)
        except BaseException:
            self.end()
            raise
        noted = self.noted()
        self.url, self.flower_url = noted.get("api", ""), noted.get("flower", "")
        self.api = httpx2.Client(base_url=self.url, timeout=70)
        return self

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"serve ended:\n{self.last_words()}")
        noted = self.noted()
        return noted.get("pid") == self.process.pid and bool(noted["is_ready"])

    def stop(self) -> int:
        """Stop it in order; return the exit status."""
        self._close_api()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_S)
        finally:
            self.end()
        return self.process.returncode

    def end(self) -> None:
        """End it at once, with all its parts: for tests that are not about how it stops."""
        self._close_api()
        self.process.kill()
        self.process.wait(60)
        kill_all_with(f"CHAOS_FOLDER={self.data}")
        if self.proxy is not None:
            self.proxy.close()
        if isinstance(self.redis, DurableRedis):
            self.redis.stop()

    def _close_api(self) -> None:
        if self.url:
            self.api.close()

    def client(self, key: str | None = None, **options: Any) -> Client:
        """Return a client of this service."""
        return Client(self.url, key, **options)

    @contextmanager
    def http(self) -> Iterator[httpx2.Client]:
        yield self.api

    def states(self) -> dict[str, dict[str, Any]]:
        """Return what the API says of each core."""
        return {core["core"]: core for core in self.api.get("/v1/cores").json()["data"]}

    def noted(self) -> dict[str, Any]:
        """Return the notes for operators in the data folder while it runs; empty before it begins."""
        try:
            return dict(json.loads((self.data / "parts.json").read_bytes()))
        except FileNotFoundError:
            return {}

    @property
    def names(self) -> list[str]:
        """The parts, but for Redis."""
        return [name for name in self.noted()["parts"] if name != "redis"]

    @property
    def workers(self) -> list[str]:
        """The parts that serve a core."""
        return [name for name in self.names if name.startswith("core")]

    def redis_url(self) -> str:
        """Return the Redis it uses, with the operator's password if it made one."""
        url = operator_url(self.noted())
        assert url is not None
        return url

    def wait_whole(self, within: float = WITHIN_S) -> None:
        """Wait until every part does its work, and every core is up."""

        def is_whole() -> bool:
            missing = [name for name in self.names if not self.is_back(name)]
            assert not missing, missing
            try:
                with self.client(patience_s=0, timeout_s=10) as client:
                    return client.ready()
            except CorelaneError as error:
                raise AssertionError(str(error)) from None

        eventually(is_whole, within, self.last_words)

    def wait_counted(self) -> None:
        """Until every core is idle and its counters tell all its work: a heartbeat may have been made before it."""
        eventually(lambda: all(core["state"] == "idle" for core in self.states().values()))
        for _ in range(2):
            self._wait_beat({core["last_beat_at"] for core in self.states().values()})

    def _wait_beat(self, before: set[str]) -> None:
        eventually(lambda: not before & {core["last_beat_at"] for core in self.states().values()})

    def part(self, name: str) -> dict[str, Any]:
        """Return the notes of `serve` on a part; empty while there are none."""
        return dict(self.noted().get("parts", {}).get(name, {}))

    def pid_of(self, name: str) -> int:
        """Return the process of a part; it may just have ended."""
        return int(self.part(name).get("pid", 0))

    def is_up(self, name: str) -> bool:
        """Whether `serve` takes the part for up, and it is not gone."""
        part = self.part(name)
        with suppress(ProcessLookupError):
            return bool(part.get("is_up")) and bool(parent_of(part["pid"]))
        return False

    def is_back(self, name: str) -> bool:
        """Whether a part does its work, as far as can be told from outside."""
        return self.child_of(name) is not None if name.startswith("core") else self.is_up(name)

    def signal(self, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a part's process, if there is one."""
        if pid := self.pid_of(name):
            with suppress(ProcessLookupError):
                os.kill(pid, sign)

    def core_of(self, name: str) -> Core:
        """Return the core that a worker serves."""
        return Core(self.host, int(name.removeprefix("core")))

    def child_of(self, name: str) -> int | None:
        """Return the process that serves the part's core now, if it is up; asks Redis, not the proxy."""
        return child_of(self.redis, self.core_of(name), self.pid_of(name))

    def ports_of(self, name: str) -> set[int]:
        """Return the local ports of a part's connections."""
        pid = self.pid_of(name)
        return ports_of([pid, *descendants(pid)])

    def move_clock(self, name: str, seconds: float) -> None:
        """Move the time of day of a part's processes by so much from now on."""
        set_clock(self.data / f"{name}.clock", seconds)

    def arm(self, name: str, points: str) -> None:
        """Give fault points to the part's next life."""
        (self.data / f"{name}.points").write_text(points)

    def log_text(self) -> str:
        """Return all that it wrote."""
        return self.log.read_text(errors="replace")

    def last_words(self) -> str:
        """Return the end of what it wrote."""
        return self.log_text()[-4000:]

    def ends(self) -> Counter[str]:
        """How often each part ended and how, as `serve` says: ``api SIGKILL``, ``keeper 1``."""
        return Counter(f"{part} {sign or status}" for part, sign, status in ENDED.findall(self.log_text()))

    def points_reached(self) -> Counter[str]:
        """How often processes killed themselves at each fault point."""
        return Counter(re.findall(r"fault point ([\w.]+)", self.log_text()))

    def strange_ends(self, killed: Mapping[str, int] = {}, asked: Mapping[str, int] = {}) -> list[str]:
        """Parts that ended otherwise than as they were killed or asked to, and `serve` itself if it did."""
        found = []
        if self.process.poll() is not None:
            found.append(f"serve itself has ended\n{self.last_words()}")
        points = self.points_reached().total()
        for end, count in self.ends().items():
            part, _, how = end.partition(" ")
            allowed = {"SIGKILL": killed.get(part, 0) + points, "SIGTERM": asked.get(part, 0), "0": asked.get(part, 0)}
            if count > allowed.get(how, 0):
                found.append(f"{part} ended with {how} {count} times, expected {allowed.get(how, 0)} times")
        return found


def launch_fleet(folder: Path, artifacts: Path, *options: str, **env: str) -> Fleet:
    """Launch `corelane serve` on free ports, or on those of ``env``. It ends with the thread that launches it."""
    settings = HOOKS | {
        "CORELANE_ARTIFACTS_DIR": str(artifacts),
        "CORELANE_HEALTH_DIR": str(folder / "health"),
        # What a test waits for is often told by the next heartbeat.
        "CORELANE_HEARTBEAT_S": "0.2",
        "CORELANE_FLOWER_PASSWORD": FLOWER[1],
        "CORELANE_WEBHOOK_RETRIES_S": "0.5,0.5,1,1,1,1,1",
        "CORELANE_WEBHOOK_TIMEOUT_S": "15",
    }
    return Fleet(folder, *options, settings=settings | env)


def start_fleet(folder: Path, artifacts: Path, *options: str, **env: str) -> Fleet:
    """Launch it as ``launch_fleet`` does; return once it is ready."""
    return launch_fleet(folder, artifacts, *options, **env).wait_ready()


@contextmanager
def running(fleet: Fleet) -> Iterator[Fleet]:
    """Wait until a fleet is ready, and stop it at the end, in order."""
    try:
        yield fleet.wait_ready()
    finally:
        status = fleet.stop()
    assert status == 0, fleet.last_words()


def preloaded(**chaos: str) -> dict[str, str]:
    """Return the environment of a process that loads ``preload``, and what that is told."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(PRELOAD), os.environ.get("PYTHONPATH", "")])), **chaos}


def armed(settings: Settings, point: str) -> dict[str, str]:
    """Return the environment of a process that has these settings and kills itself at a point of ``kill_points``."""
    return settings.environment() | preloaded(CHAOS_POINTS=f"{point}:1")


def set_clock(file: Path, seconds: float) -> None:
    """Set how far a clock of ``preload`` is off from now on."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    os.pwrite(descriptor, struct.pack("d", seconds), 0)
    os.close(descriptor)


def launch(argv: Sequence[str], env: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, beside its log; it ends with this one."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def child_of(server: Any, core: Core, parent: int) -> int | None:
    """Return the process that serves a core under a worker, if it is up."""
    with suppress(redis.RedisError, ProcessLookupError), server.client() as raw:
        state, pid = raw.hmget(f"cl:core:{core}", "state", "pid")
        if state in ("idle", "busy") and pid and parent_of(int(pid)) == parent:
            return int(pid)
    return None


def parent_of(pid: int) -> int:
    """Return the parent of a process; raise ProcessLookupError if it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    if state == "Z":
        raise ProcessLookupError(pid)
    return int(parent)


def descendants(pid: int) -> list[int]:
    """All processes below a process, in no order."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *descendants(child)]
    return found


def ports_of(pids: Iterable[int]) -> set[int]:
    """Return the local ports of the TCP connections that these processes hold."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(link.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes}


def kill_all_with(setting: str) -> None:
    """Kill every process that has ``NAME=value`` in its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
