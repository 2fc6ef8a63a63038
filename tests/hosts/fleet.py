"""A fleet on hosts of its own: Redis and the front on one, workers on two others whose clocks are an hour off.

Each host runs `corelane serve --roles`, as the guide says.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from corelane.cli.redis_server import find_server, server_argv
from corelane.client import Client
from corelane.store import keys
from tests.chaos.processes import Clock, environment, launch, made
from tests.chaos.server import Raw
from tests.chaos.watch import held_by
from tests.hosts.network import Host, Switch
from tests.tools.redis import client_of
from tests.tools.waiting import eventually

#: A fleet of three hosts is ready well within this, in seconds.
READY_S = 120

REDIS_PORT, API_PORT = 6379, 8000

#: Short leases, so that a cut need not be long; webhooks go to the network of the hosts.
SETTINGS = {
    "CORELANE_AUTH": "off",
    "CORELANE_LOG_FORMAT": "json",
    "CORELANE_LEASE_S": "3",
    "CORELANE_FEED_TOKENS": "4000",
    "CORELANE_WEBHOOK_SECRET": "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "CORELANE_WEBHOOK_RETRIES_S": ",".join(["0.5"] * 4 + ["1"] * 40),
    "CORELANE_WEBHOOK_TIMEOUT_S": "3",
}

#: How far the clock of each host is off, in seconds. It is moved as in a chaos run, for all that reads the time in
#: Python: under Debian 12's libfaketime Python's ``time.sleep``, or every timed wait, no longer works.
CLOCKS = {"front": 0, "east": 3600, "west": -3600}


class HostRedis:
    """The Redis on the front, as the test reaches it."""

    def __init__(self, address: str) -> None:
        self.url = f"redis://{address}:{REDIS_PORT}/0"

    def client(self) -> Raw:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(self.url, 3)


class HostFleet:
    """Started whole; ``stop`` ends everything."""

    def __init__(self, folder: Path, switch: Switch, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.switch = switch
        self.hosts = {name: switch.add(name) for name in CLOCKS}
        self.workers = [self.hosts["east"], self.hosts["west"]]
        self.front = self.hosts["front"]
        self.redis = HostRedis(self.front.address)
        self.url = f"http://{self.front.address}:{API_PORT}"
        self._settings = SETTINGS | {"CORELANE_WEBHOOK_ALLOWED_NETWORKS": f"{switch.network}.0/24"} | dict(settings)
        self._clocks = {name: Clock(made(folder / name) / "clock") for name in CLOCKS}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every host at once; return when all are ready."""
        for name, seconds in CLOCKS.items():
            self._clocks[name].move(seconds)
        argv = server_argv(find_server(), made(self.folder / "redis"), REDIS_PORT)
        argv += ["--bind", "0.0.0.0", "--protected-mode", "no", "--notify-keyspace-events", "Kh"]
        self._launch("redis", self.front, argv)
        roles = {"front": "api,keeper,deliveries"}
        for name in self.hosts:
            own = ["--host", self.front.address, "--port", str(API_PORT)] if name == "front" else ["--cores", "1"]
            self.serve(name, "--roles", roles.get(name, "worker"), *own)
        eventually(self._is_ready, READY_S, self.last_words)

    def _is_ready(self) -> bool:
        if self.ended():
            raise RuntimeError(f"ended: {self.ended()}\n{self.last_words()}")
        return all(self.known(name).get("is_ready") for name in self.hosts)

    def serve(self, name: str, *arguments: str) -> None:
        """Run `corelane serve` on a host."""
        argv = [sys.executable, "-m", "corelane", "serve", "--redis", self.redis.url]
        self._launch(name, self.hosts[name], [*argv, "--data", str(self.folder / name), *arguments])

    def run(self, host: Host, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of Corelane on a host to its end."""
        argv = host.command(sys.executable, "-m", "corelane", *arguments)
        env = self._environment(host.name) | {"CORELANE_REDIS_URL": self.redis.url} | settings
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, cwd=self.folder)

    def stop(self) -> dict[str, int]:
        """End every host, the workers first; return the exit statuses."""
        statuses: dict[str, int] = {}
        for group in (("west", "east"), ("front",), ("redis",)):
            running = {name: self._processes[name] for name in group if name in self._processes}
            for process in running.values():
                process.send_signal(signal.SIGINT)
            for name, process in running.items():
                try:
                    statuses[name] = process.wait(60)
                except subprocess.TimeoutExpired:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    statuses[name] = process.wait(60)
        for clock in self._clocks.values():
            clock.close()
        return statuses

    def client(self, key: str | None = None) -> Client:
        """Return a client of this service that repeats nothing."""
        return Client(self.url, key, patience_s=0, timeout_s=10)

    def known(self, name: str) -> dict[str, Any]:
        """Return the notes of a host's `serve`; empty before it begins."""
        try:
            return dict(orjson.loads((self.folder / name / "parts.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def ended(self) -> list[str]:
        """Return the hosts whose `serve` has ended, and Redis."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def held_by(self, host: Host) -> dict[str, set[int]]:
        """Return the items that the core of a host holds, by job."""
        with self.redis.client() as raw:
            return held_by(raw, f"{host.name}/0")

    def serves(self, host: Host) -> bool:
        """Whether the core of a host is up, by its heartbeat."""
        with self.redis.client() as raw:
            return raw.hget(keys.core(f"{host.name}/0"), "state") in ("idle", "busy")

    def refusals(self, host: Host) -> int:
        """Count how often a worker of a host was refused answers that came too late."""
        return self.log_of(host.name).count('"late_answers_refused"')

    def log_of(self, name: str) -> str:
        """Return what a host wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def strange_ends(self) -> list[str]:
        """Return parts that ended: a network that is away is no reason for any."""
        ended = [f"{name} has ended\n{self.log_of(name)[-2000:]}" for name in self.ended()]
        relaunched = [
            f"{part} on {name} was launched {about['launches']} times"
            for name in self.hosts
            for part, about in self.known(name).get("parts", {}).items()
            if about["launches"] > 1
        ]
        return ended + relaunched

    def last_words(self, most: int = 3000) -> str:
        """Return the end of every host's log."""
        return "\n".join(f"--- {name}\n{self.log_of(name)[-most:]}" for name in self._processes)

    def _environment(self, name: str) -> dict[str, str]:
        return environment(self._settings | {"CHAOS_CLOCK": str(self._clocks[name].file)})

    def _launch(self, name: str, host: Host, argv: list[str]) -> None:
        self._processes[name] = launch(host.command(*argv), self._environment(host.name), self.folder / f"{name}.log")
