"""A fleet on hosts of its own: Redis and the front on one, workers on two others whose clocks are an hour off.

Each host runs `corelane serve --roles`, as the guide says.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corelane.cli.redis_server import find_server, server_argv
from corelane.client import Client
from tests.chaos.watch import held_by
from tests.hosts.network import Host, Switch
from tests.tools.fleet import SHAKEN, Fleet, launch
from tests.tools.redis import client_of
from tests.tools.waiting import eventually

REDIS_PORT, API_PORT = 6379, 8000

#: How far the clock of each host is off, in seconds. It is moved as in a chaos run, for all that reads the time in
#: Python: under Debian 12's libfaketime Python's ``time.sleep``, or every timed wait, no longer works.
CLOCKS = {"front": 0, "east": 3600, "west": -3600}


class HostRedis:
    """The Redis on the front, as the test reaches it."""

    def __init__(self, folder: Path, front: Host) -> None:
        self.url = f"redis://{front.address}:{REDIS_PORT}/0"
        folder.mkdir()
        argv = server_argv(find_server(), folder, REDIS_PORT)
        argv += ["--bind", "0.0.0.0", "--protected-mode", "no", "--notify-keyspace-events", "Kh"]
        self.process = launch(front.command(*argv), os.environ, folder / "redis.log")

    def client(self) -> Any:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(self.url, 3)


class HostFleet:
    """Hosts, the `serve` of each, and their Redis; ``running_hosts`` starts and ends them."""

    def __init__(self, folder: Path, switch: Switch, settings: Mapping[str, str]) -> None:
        self.hosts = {name: switch.add(name) for name in CLOCKS}
        front, east, west = self.hosts.values()
        self.address, self.workers = switch.address, [east, west]
        # Short leases, so that a cut need not be long; webhooks go to the network of the hosts.
        more = {"CORELANE_AUTH": "off", "CORELANE_LEASE_S": "3"}
        self.settings = SHAKEN | more | {"CORELANE_WEBHOOK_ALLOWED_NETWORKS": f"{switch.network}.0/24"} | dict(settings)
        self.url = f"http://{front.address}:{API_PORT}"
        self.redis = HostRedis(folder / "redis", front)
        worker = ("--roles", "worker", "--cores", "1")
        roles = {"front": ("--roles", "api,keeper,deliveries", "--host", front.address, "--port", str(API_PORT))}
        self.fleets = {name: self._serve(folder, host, *roles.get(name, worker)) for name, host in self.hosts.items()}

    def _serve(self, folder: Path, host: Host, *options: str) -> Fleet:
        settings = self.settings | {"CORELANE_CORE_HOST": host.name}
        options = ("--redis", self.redis.url, *options)
        return Fleet(folder / host.name, *options, settings=settings, clock_s=CLOCKS[host.name], on=host)

    def run(self, host: Host, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of Corelane on a host to its end."""
        argv = host.command(sys.executable, "-m", "corelane", *arguments)
        return subprocess.run(
            argv,
            env=os.environ | self.settings | {"CORELANE_REDIS_URL": self.redis.url} | settings,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def client(self, key: str | None = None, **options: Any) -> Client:
        """Return a client of this service."""
        return Client(self.url, key, **options)

    def held_by(self, host: Host) -> dict[str, set[int]]:
        """Return the items that the core of a host holds, by job."""
        with self.redis.client() as raw:
            return held_by(raw, f"{host.name}/0")

    def serves(self, host: Host) -> bool:
        """Whether the core of a host is up, by its heartbeat."""
        with self.redis.client() as raw:
            return raw.hget(f"cl:core:{host.name}/0", "state") in ("idle", "busy")

    def refusals(self, host: Host) -> int:
        """Count how often a worker of a host was refused answers that came too late."""
        return self.fleets[host.name].log_text().count('"late_answers_refused"')

    def strange_ends(self) -> list[str]:
        """Return parts that ended: a network that is away is no reason for any."""
        return [f"on {name}: {end}" for name, fleet in self.fleets.items() for end in fleet.strange_ends()]


@contextmanager
def running_hosts(fleet: HostFleet) -> Iterator[HostFleet]:
    """Wait until every host is ready; at the end stop the workers, then the front, in order, and Redis."""
    try:
        eventually(lambda: fleet.redis.client().ping())
        for each in fleet.fleets.values():
            each.wait_ready()
        yield fleet
    finally:
        statuses = {name: each.stop() for name, each in reversed(fleet.fleets.items())}
        fleet.redis.process.kill()
        fleet.redis.process.wait(60)
    assert not any(statuses.values()), statuses
