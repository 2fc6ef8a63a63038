"""Callers who leave, hold back or flood connections: what that costs the API, and whether it is at rest soon after.

    python benchmarks/abuse.py [--url http://127.0.0.1:8000] [--nginx] [--only pipelined,resets] [--quick]

It runs against a service on this machine: a given one, or one that it starts with the null engine. Each kind of abuse
has its own number of connections and ends after a fixed time at the latest. During an abuse /livez is asked twenty
times a second. After the abuse, the API process must come to rest within twenty seconds: no more file descriptors than
before, no half-closed connections, an idle CPU. It prints for each kind: p50 and p99 of /livez, CPU time in all and for
each connection, seconds until rest, peak memory and memory afterwards, descriptors.
With ``--nginx`` callers reach nginx, configured as docs/keys.md says; the figures are the API's all the same.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.abuse_kinds import HELD, KINDS, QUESTION, Abuse, Target
from benchmarks.harness import about_machine, children, cpu_seconds, is_quick, parser_of, percentile, serving
from benchmarks.nginx import nginx_before
from corelane.tasks.registry import TASKS

#: Limits: p99 of /livez during an abuse in ms, the API's memory in MB, and the time to rest in seconds (Hypercorn may
#: hold closed connections for 15 s).
LIVEZ_P99_MS, MEMORY_MB, REST_S = 200.0, 400.0, 20.0

#: /livez is asked this often, in seconds.
PROBE_S = 0.05

#: Connections to the service that the process which asks /livez keeps open.
PROBES = 1

#: Longest time of one kind of abuse, in seconds, and its most connections at a time.
MOST_S, AT_A_TIME = 30.0, 50

#: At rest, the API may have this many more descriptors, and use this many more CPU seconds a second, than before.
REST_FDS, REST_CPU = 2, 0.15

#: Longest wait for rest after an abuse, in seconds; then the next one begins anyway.
GIVE_UP_S = 75.0

CLOSE_WAIT = "08"


class Processes:
    """The processes that answer on a port, as /proc shows them, without the parents that only hold the sockets."""

    def __init__(self, port: int) -> None:
        self._port = f":{port:04X}"
        sockets = {f"socket:[{row[9]}]" for row in self._sockets() if row[3] == "0A"}
        holders = {pid for pid in self._pids() if sockets & self._links(pid)}
        self.pids = [pid for pid in holders if not holders.intersection(children(pid))]

    def fds(self) -> int:
        """Return how many file descriptors are open."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids)

    def half_closed(self) -> int:
        """Count connections whose caller has left and that are still held."""
        return sum(row[3] == CLOSE_WAIT for row in self._sockets())

    def resident_mb(self) -> float:
        """Return the memory held, in MB."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)

    def peak_mb(self) -> float:
        """Return the most memory held since the last call, in MB."""
        peak = 0.0
        for pid in self.pids:
            status = Path(f"/proc/{pid}/status").read_text()
            peak += int(status.partition("VmHWM:")[2].split()[0]) / 1e3
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        return round(peak, 1)

    def cpu_s(self) -> float:
        """Return the CPU time used so far, in seconds."""
        return sum(cpu_seconds(self.pids).values())

    def _sockets(self) -> list[list[str]]:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [row for row in rows if row[1].endswith(self._port)]

    @staticmethod
    def _pids() -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]

    @staticmethod
    def _links(pid: int) -> set[str]:
        found = set()
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()))
        return found


#: Kinds of abuse in a quick run, and the share of the connections that it makes.
QUICKLY, QUICK_SHARE = ("pipelined",), 0.02


def probe(url: str, pipe: Connection) -> None:
    """Ask /livez at a steady rate until ``pipe`` says stop; a time counts from when the request was due, up to 30 s."""
    taken = []
    with httpx2.Client(base_url=url, timeout=30) as client:
        client.get("/livez").raise_for_status()
        pipe.send("begun")
        due = time.monotonic()
        while not pipe.poll(max(0.0, due - time.monotonic())):
            with suppress(httpx2.TimeoutException):
                client.get("/livez").raise_for_status()
            taken.append(1000 * (time.monotonic() - due))
            due = max(due + PROBE_S, time.monotonic())
    pipe.send(taken)


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Probe /livez during the block, from another process; the times are in the list after the block, in ms."""
    taken: list[float] = []
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=probe, args=(url, theirs), daemon=True)
    process.start()
    ours.recv()
    yield taken
    ours.send("stop")
    if ours.poll(60):
        taken.extend(ours.recv())
    process.join(10)


async def rest(process: Processes, fds: int, cpu: float) -> float | None:
    """Return the seconds until the processes are at rest; None if they do not come to rest."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < GIVE_UP_S:
        used, at = process.cpu_s(), time.monotonic()
        await asyncio.sleep(1)
        rate = (process.cpu_s() - used) / (time.monotonic() - at)
        if process.fds() <= fds + REST_FDS and process.half_closed() == 0 and rate <= cpu + REST_CPU:
            return round(passed, 1)
    return None


async def measure(target: Target, process: Processes, abuse: Abuse, connections: int, at_a_time: int) -> dict[str, Any]:
    """Run one kind of abuse, and see what it costs."""
    fds, used, began = process.fds(), process.cpu_s(), time.monotonic()
    process.peak_mb()
    await asyncio.sleep(1)
    cpu = (process.cpu_s() - used) / (time.monotonic() - began)
    made = refused = 0
    turns = asyncio.Semaphore(at_a_time)

    async def one(number: int) -> None:
        nonlocal made, refused
        async with turns:
            try:
                await abuse(target, number)
                made += 1
            except OSError:
                refused += 1

    with probing(target.url) as taken:
        used, began = process.cpu_s(), time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_S):
                await asyncio.gather(*[one(number) for number in range(connections)])
        seconds = time.monotonic() - began
        resting = await rest(process, fds + PROBES, cpu)
    used = process.cpu_s() - used
    return {
        "connections": made,
        "refused": refused,
        "seconds": round(seconds, 1),
        "livez_p50_ms": round(percentile(taken, 50), 1),
        "livez_p99_ms": round(percentile(taken, 99), 1),
        "cpu_s": round(used, 1),
        "cpu_ms_each": round(1000 * used / max(1, made), 1),
        "peak_mb": process.peak_mb(),
        "rest_s": resting,
        "api_mb": process.resident_mb(),
        "fds": process.fds(),
        "half_closed": process.half_closed(),
    }


async def open_job(url: str) -> str:
    """Submit a job that stays open while this runs: its results wait to be dropped. Return its id."""
    lines = [b'{"results_window": 1000}', *[QUESTION] * 3000]
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        kind = {"Content-Type": "application/x-ndjson"}
        response = await client.post("/v1/jobs", content=b"\n".join(lines), headers=kind)
        return str(response.raise_for_status().json()["id"])


async def run(url: str, only: list[str], share: float, *, behind_nginx: bool) -> dict[str, Any]:
    """Run each kind of abuse in ``only``, one after the other; return their figures."""
    process, figures = Processes(Target(url).port), {}
    with nginx_before(url) if behind_nginx else nullcontext(url) as asked:
        target = Target(asked)
        target.job = await open_job(url)
        for name in only:
            abuse, connections = KINDS[name]
            made = max(1, int(connections * share))
            at_a_time = made if name in HELD else AT_A_TIME
            figures[name] = await measure(target, process, abuse, made, at_a_time)
            print(json.dumps({name: figures[name]}), flush=True)
    # The service may still be busy with what callers left behind. Its figures are kept without this answer.
    with suppress(httpx2.TimeoutException):
        async with httpx2.AsyncClient(base_url=url) as client:
            await client.delete(f"/v1/jobs/{target.job}")
    return figures


def is_kept(found: dict[str, Any]) -> bool:
    """Return whether the figures of one kind are within the limits."""
    is_quick_enough = found["livez_p99_ms"] < LIVEZ_P99_MS and found["peak_mb"] < MEMORY_MB
    return is_quick_enough and found["rest_s"] is not None and found["rest_s"] <= REST_S


def main() -> int:
    """Measure, print, and say which kinds are within the limits."""
    parser = parser_of(__doc__)
    parser.add_argument("--url", help="a running service of this machine; one of its own if not given")
    parser.add_argument(
        "--only", default=",".join(QUICKLY if is_quick() else KINDS), help="kinds of abuse, comma-separated"
    )
    parser.add_argument("--nginx", action="store_true", help="put nginx in front, as docs/keys.md says")
    options = parser.parse_args()
    only, share = options.only.split(","), QUICK_SHARE if options.quick else 1.0
    print(about_machine(), flush=True)
    with ExitStack() as stack:
        url = options.url
        if url is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(
                serving(folder, target="null", model="null", models=",".join(TASKS), api_processes=1)
            ).url
        figures = asyncio.run(run(url, only, share, behind_nginx=options.nginx))
    broken = [name for name, found in figures.items() if not is_kept(found)]
    promise = f"/livez p99 < {LIVEZ_P99_MS:g} ms, memory < {MEMORY_MB:g} MB, at rest within {REST_S:g} s"
    print(f"NOT kept by {', '.join(broken)}:" if broken else "kept by all:", promise)
    return 1 if broken and not is_quick() else 0


if __name__ == "__main__":
    sys.exit(main())
