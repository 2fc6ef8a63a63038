"""Several API processes on one address: real processes, a real Redis, and what they must know of each other."""

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import orjson
import pytest
import redis

from benchmarks.harness import children
from corelane.cli.api_processes import count_processes, run_processes, usable_cpus
from corelane.settings import Settings
from tests.api.wires import ESTABLISHED
from tests.conftest import free_port
from tests.corelane.store_bench import Bench
from tests.tools.waiting import eventually

ONE = {"question": "Who?", "context": "Ada."}

#: Connections: that the kernel gave all of them to one of two processes happens once in 2 ** 39 times.
MANY = 40


POSTED = 'corelane_http_requests_total{method="POST",route="/v1/jobs",status="202"}'


@dataclass
class Processes:
    """A parent, and what it serves."""

    parent: subprocess.Popen[bytes]
    port: int
    open: list[http.client.HTTPConnection] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        return children(self.parent.pid)

    def connect(self, count: int) -> list[http.client.HTTPConnection]:
        made = [http.client.HTTPConnection("127.0.0.1", self.port, timeout=60) for _ in range(count)]
        self.open += made
        return made

    def spread(self) -> Counter[int]:
        """Count the connections that each process has."""
        port = f":{self.port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(port) and row[3] == ESTABLISHED}
        return Counter({pid: len(ours & set(files_of(pid))) for pid in self.pids})

    def is_answering(self) -> bool:
        """Whether every process listens and one answers."""
        try:
            return len(self.pids) == 2 and httpx2.get(f"http://127.0.0.1:{self.port}/livez").status_code == 200
        except httpx2.TransportError:
            return False

    def metric(self, line: str) -> float:
        found = httpx2.get(f"http://127.0.0.1:{self.port}/metrics").text
        match = re.search(f"^{re.escape(line)} (\\S+)$", found, re.MULTILINE)
        return float(match[1]) if match else 0.0


def files_of(pid: int) -> list[str]:
    return [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]


@pytest.fixture
def processes(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Processes]:
    Bench(settings, raw, bell).core("a/0")
    port = free_port()
    env = settings.environment(api_processes=2, submit_rate="1000/hour")
    parent = subprocess.Popen([sys.executable, "-m", "corelane", "api", "--port", str(port)], env=env)
    found = Processes(parent, port)
    eventually(found.is_answering)
    yield found
    for connection in found.open:
        connection.close()
    if parent.poll() is None:
        parent.terminate()
    assert parent.wait(60) == 0


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, *, body: object = None
) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "mine"} if body else {}
    connection.request(method, path, orjson.dumps(body) if body else None, headers)
    return connection.getresponse()


def test_processes_share_callers_and_know_what_they_must_of_each_other(processes: Processes) -> None:
    connections = processes.connect(MANY)
    given = [ask(connection, "POST", "/v1/jobs", body=ONE) for connection in connections]
    assert {response.status for response in given} == {202}
    left = [int(response.headers["X-RateLimit-Remaining"]) for response in given]
    [job] = {orjson.loads(response.read())["id"] for response in given}
    assert min(processes.spread().values()) > 0
    # The limit's window slides: at its end a request counts in part.
    assert MANY - 1 <= left[0] - left[-1] + 1 <= MANY
    eventually(lambda: processes.metric(POSTED) == MANY)
    streams = [ask(connection, "GET", f"/v1/jobs/{job}/events") for connection in connections]
    assert {stream.status for stream in streams} == {200}
    eventually(lambda: processes.metric("corelane_event_streams") == MANY)

    victim, other = processes.pids
    spared = processes.spread()[other]
    os.kill(victim, signal.SIGKILL)
    # Those whom the kernel gives to the one that is gone wait for the one that comes.
    for connection in processes.connect(MANY):
        assert ask(connection, "GET", "/livez").read()
    eventually(lambda: len(processes.pids) == 2)
    assert victim not in processes.pids
    assert processes.spread()[other] >= spared
    for stream in streams:
        stream.close()

    [poll] = processes.connect(1)
    poll.request("GET", f"/v1/jobs/{job}?wait=60")
    eventually(lambda: sum(processes.spread().values()) > MANY)
    processes.parent.terminate()
    with closing(poll.getresponse()) as response:
        assert orjson.loads(response.read())["status"] == "queued"
    assert processes.parent.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        processes.connect(1)[0].connect()


def test_process_that_keeps_dying_ends_all_of_them(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cannot_start = settings.environment() | {"CORELANE_PORT": "none"}
        assert not asyncio.run(run_processes([listening], cannot_start, 1))


@pytest.mark.parametrize(
    ("wanted", "cpus", "count"), [(None, 1, 1), (None, 2, 1), (None, 7, 1), (None, 8, 2), (None, 64, 4), (3, 1, 3)]
)
def test_processes_are_as_many_as_the_cpus_ask_for(wanted: int | None, cpus: int, count: int) -> None:
    assert count_processes(wanted, cpus) == count


@pytest.mark.parametrize(("limit", "most"), [("max 100000", None), ("150000 100000", 1), ("50000 100000", 1)])
def test_limit_of_a_container_counts(limit: str, most: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    allowed = len(os.sched_getaffinity(0))
    assert usable_cpus(tmp_path / "cpu.max") == (most or allowed)
    assert usable_cpus(tmp_path / "none") == allowed
