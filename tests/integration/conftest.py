"""A whole fleet as a user would start it: `corelane serve`, with real Redis, Celery processes, Hypercorn, and the
built-in model. The fixture `fleet`, one for the whole run, is in `tests/conftest.py`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from corelane.cli.redis_users import operator_url
from corelane.client import Client
from corelane.engine.cores import cpu_slots
from tests.conftest import free_port
from tests.tools.waiting import eventually

FLOWER = ("corelane", "flower-password-for-tests")
WEBHOOK_SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

READY_S = 120


@dataclass
class Fleet:
    """A running `corelane serve`."""

    url: str
    flower_url: str
    data: Path
    log: Path
    process: subprocess.Popen[bytes]
    cores: int
    api: httpx2.Client
    artifacts: Path

    def client(self) -> Client:
        return Client(self.url)

    @contextmanager
    def http(self) -> Iterator[httpx2.Client]:
        yield self.api

    def states(self) -> dict[str, dict]:
        return {core["core"]: core for core in self.api.get("/v1/cores").json()["data"]}

    def noted(self) -> dict:
        """Return the notes for operators in the data folder while it runs."""
        return json.loads((self.data / "parts.json").read_bytes())

    def redis_url(self) -> str:
        """Return the Redis it uses, with the operator's password if it made one."""
        url = operator_url(self.noted())
        assert url is not None
        return url

    def wait_whole(self) -> None:
        """Until every core is up and waiting."""

        def is_whole() -> bool:
            states = {name: core["state"] for name, core in self.states().items()}
            assert [state in ("idle", "busy") for state in states.values()] == [True] * self.cores, states
            return True

        eventually(is_whole, why="every core waits or works")

    def wait_counted(self) -> None:
        """Until every core is idle and its counters tell all its work: a heartbeat may have been made before it."""
        eventually(lambda: all(core["state"] == "idle" for core in self.states().values()))
        for _ in range(2):
            self._wait_beat({core["last_beat_at"] for core in self.states().values()})

    def _wait_beat(self, before: set[str]) -> None:
        eventually(lambda: not before & {core["last_beat_at"] for core in self.states().values()})


def parent_of(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("PPid")]
    return int(line.split()[1])


def start_fleet(folder: Path, artifacts: Path, *extra: str, **env: str) -> Fleet:
    """`corelane serve` on free ports, or on those of ``env``; returns once it is ready."""
    cores = min(2, len(cpu_slots()))
    log = folder / "serve.log"
    argv = [sys.executable, "-m", "corelane", "serve", "--cores", str(cores), "--data", str(folder), *extra]
    settings = {
        "CORELANE_ARTIFACTS_DIR": str(artifacts),
        "CORELANE_CORE_HOST": "testhost",
        "CORELANE_PORT": str(free_port()),
        "CORELANE_FLOWER_PORT": str(free_port()),
        "CORELANE_REDIS_PORT": str(free_port()),
        "CORELANE_HEALTH_DIR": str(folder / "health"),
        # What a test waits for is often told by the next heartbeat, or done by the next sweep.
        "CORELANE_HEARTBEAT_S": "0.2",
        "CORELANE_FLOWER_PASSWORD": FLOWER[1],
        "CORELANE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "CORELANE_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CORELANE_WEBHOOK_RETRIES_S": "0.5,0.5,1,1,1,1,1",
        "CORELANE_WEBHOOK_TIMEOUT_S": "15",
        **env,
    }
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=dict(os.environ) | settings)

    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError("serve ended:\n" + log.read_text(errors="replace")[-4000:])
        try:
            noted = json.loads((folder / "parts.json").read_bytes())
        except FileNotFoundError:
            return False
        return noted["pid"] == process.pid and noted["is_ready"]

    try:
        eventually(ready, READY_S)
    except BaseException:
        process.kill()
        raise
    noted = json.loads((folder / "parts.json").read_bytes())
    api = httpx2.Client(base_url=noted["api"], timeout=70)
    return Fleet(noted["api"], noted.get("flower", ""), folder, log, process, cores, api, artifacts)


def end_fleet(fleet: Fleet) -> None:
    """End a fleet at once, with all its parts: for tests that are not about how it stops."""
    fleet.api.close()
    fleet.process.kill()
    fleet.process.wait(60)


def stop_fleet(fleet: Fleet) -> int:
    fleet.api.close()
    fleet.process.send_signal(signal.SIGINT)
    return fleet.process.wait(60)
