"""Several cells behind one API: throughput with one cell and with more. `make bench-cells` runs it.

    python benchmarks/cells.py [--cells 4] [--budget 0.15] [--quick]

A cell is a Redis, a worker of the null engine and a keeper. One machine has too few CPUs for several whole cells, so
each cell gets a small budget of CPU time, from the kernel (a cgroup), which it uses up; the API and the generator share
the rest of the machine. What is seen is whether anything that cells share holds them back: items/s by the number of
cells, and CPU µs per item by role, which must not grow.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.connections import Connection
from benchmarks.processes import children, cpu_seconds, descendants
from benchmarks.queue_plane import job_body
from benchmarks.runs import QUICK, is_quick, keep
from benchmarks.simulated_cores import own_redis
from corelane.cli.ports import free_port
from corelane.domain.api_keys import unchecked_owner
from corelane.domain.cells import rendezvous
from corelane.domain.ids import ALPHABET
from corelane.engine.cores import cpu_slots
from corelane.settings import Settings

#: Connections that submit to each cell, and items in each of their jobs.
SUBMITTERS, PER_JOB, PAYLOAD_BYTES = 8, 1000, 200

#: Times of a run: until the caches are warm, and measured, in seconds.
WARM_S, RUN_S = 3.0, 15.0

#: The kernel hands out a budget in pieces of this time, in microseconds: short ones, so that no job waits for long.
PERIOD_US = 20_000

#: All processes of a service are up by then, and gone, in seconds.
READY_S, STOP_S = 300, 30

#: What is measured goes before what else wants the CPU, in shares of which others have 1,024: a cell gets its budget.
WEIGHT = 10_000

CGROUPS = Path("/sys/fs/cgroup")


@dataclass
class RunningCell:
    """One cell: its Redis, its processes, and the settings of all."""

    name: str
    redis_url: str
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        """Return every process of the cell but its Redis."""
        own = [process.pid for process in self.processes]
        return [*own, *(pid for each in own for pid in descendants(each))]


class Processes:
    """Commands of Corelane that run until ``stop``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self, settings: Settings, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command with these settings."""
        argv = [sys.executable, "-m", "corelane", *arguments]
        with (self._folder / f"{arguments[0]}-{settings.cell}.log").open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=settings.environment())
        self._all.append(process)
        return process

    def stop(self) -> None:
        """Ask all to stop, and wait for them."""
        for process in self._all:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self._all:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()


@contextmanager
def running(count: int, folder: Path) -> Iterator[tuple[str, int, list[RunningCell]]]:
    """Yield the URL and the process of an API over so many cells, and the cells, once all cores are up."""
    with ExitStack() as stack:
        processes = Processes(folder)
        cells = [RunningCell(name, stack.enter_context(own_redis())) for name in ALPHABET[:count]]
        stack.callback(processes.stop)
        listed = ",".join(f"{cell.name}={cell.redis_url}" for cell in cells)
        base = {"target": "null", "model": "null", "auth": "off", "log_level": "warning", "data_dir": folder}
        every = Settings(cells=listed, **base).of_cells()  # type: ignore[arg-type]
        for place, cell in enumerate(cells):
            settings = every[cell.name].model_copy(update={"core_host": f"cell{cell.name}"})
            cell.processes.append(processes.start(settings, "worker", "--core", str(place % len(cpu_slots()))))
            # A quick run is over before anything would have to be kept up.
            if not is_quick():
                cell.processes.append(processes.start(settings, "keeper"))
        port = free_port("127.0.0.1", 0)
        api = processes.start(every[cells[0].name], "api", "--port", str(port))
        url = f"http://127.0.0.1:{port}"
        wait_for_cores(url, count, api, folder)
        yield url, api.pid, cells


def wait_for_cores(url: str, count: int, api: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Wait until so many cores are up."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and api.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            found = httpx2.get(f"{url}/v1/cores", timeout=10).json().get("data", [])
            if sum(core["state"] in ("idle", "busy") for core in found) == count:
                return
        time.sleep(0.2)
    said = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in folder.glob("*.log"))
    raise RuntimeError(f"{count} cores did not come up within {READY_S} s\n{said}")


@contextmanager
def budget(name: str, pids: Sequence[int], share: float | None) -> Iterator[bool]:
    """Give processes a share of one CPU between them, or no bound, while a block runs; yield whether the kernel does.

    Either way they go before everything else on the machine.
    """
    quota = None if share is None else str(max(1000, int(PERIOD_US * share)))
    first = CGROUPS / "cpu" if (CGROUPS / "cpu" / "cgroup.procs").exists() else CGROUPS
    group = first / f"corelane-{name}-{os.getpid()}"
    try:
        group.mkdir()
        if first == CGROUPS:
            with suppress(OSError):
                (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")
            (group / "cpu.weight").write_text(str(WEIGHT // 10))
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(quota or "-1")
            (group / "cpu.shares").write_text(str(WEIGHT))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        sys.stderr.write(f"no budget for {name}: {error}\n")
        with suppress(OSError):
            group.rmdir()
        yield False
        return
    try:
        yield True
    finally:
        for member in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (first / "cgroup.procs").write_text(member)
        with suppress(OSError):
            group.rmdir()


def owner_of(cell: str, cells: Sequence[str], number: int) -> str:
    """Return a text to be sent as a key whose owner is at home in a cell."""
    texts = (f"bench-{number}-{n}" for n in range(10_000))
    return next(text for text in texts if rendezvous(unchecked_owner(text), cells) == cell)


class Load:
    """Connections that submit one job after another, each once the one before is final."""

    def __init__(self, url: str, cells: Sequence[str]) -> None:
        self._url = url
        self._body = job_body(PER_JOB, PAYLOAD_BYTES)
        self._done = dict.fromkeys(cells, 0)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._submit, args=(cell, owner_of(cell, cells, number)), daemon=True)
            for cell in cells
            for number in range(SUBMITTERS)
        ]

    def start(self) -> None:
        """Begin to submit."""
        for thread in self._threads:
            thread.start()

    def done(self) -> dict[str, int]:
        """Return the items answered so far, by cell."""
        with self._lock:
            return dict(self._done)

    def stop(self) -> None:
        """Submit no more; raise what went wrong."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]

    def _submit(self, cell: str, owner: str) -> None:
        try:
            connection = Connection(self._url)
            while not self._stop.is_set():
                job = connection.call("POST", "/v1/jobs", self._body, X_API_Key=owner, Prefer="wait=50")
                if job["id"][4] != cell or job["status"] != "succeeded":
                    raise RuntimeError(f"{job['id']} is {job['status']}, and not one of cell {cell}")
                with self._lock:
                    self._done[cell] += PER_JOB
        except BaseException as error:
            self.failures.append(error)


def measure(count: int, share: float, folder: Path) -> dict[str, Any]:
    """Return the figures of so many cells."""
    folder.mkdir()
    with running(count, folder) as (url, api, cells), ExitStack() as budgets:
        pids = {cell.name: [redis_of(cell.redis_url), *cell.pids] for cell in cells}
        limited = [budgets.enter_context(budget(f"cell-{name}", found, share)) for name, found in pids.items()]
        budgets.enter_context(budget("api", [api, os.getpid()], None))
        load = Load(url, [cell.name for cell in cells])
        load.start()
        time.sleep(0.5 if is_quick() else WARM_S)
        everyone = [api, os.getpid(), *(pid for found in pids.values() for pid in found)]
        before, done, began = cpu_by_role(everyone), load.done(), time.perf_counter()
        used = {name: sum(cpu_seconds(found).values()) for name, found in pids.items()}
        waiting = wait_and_look(1.0 if is_quick() else RUN_S, cells)
        elapsed, after, ended = time.perf_counter() - began, load.done(), cpu_by_role(everyone)
        used = {name: sum(cpu_seconds(found).values()) - used[name] for name, found in pids.items()}
        load.stop()
    items = {name: after[name] - done[name] for name in after}
    total = max(1, sum(items.values()))
    return {
        "cells": count,
        "items_per_s": round(sum(items.values()) / elapsed, 1),
        "items_per_s_by_cell": {name: round(number / elapsed, 1) for name, number in items.items()},
        "cpus_used_by_cell": {name: round(seconds / elapsed, 3) for name, seconds in used.items()},
        "us_cpu_per_item_by_role": {
            role: round((ended[role] - before.get(role, 0)) / total * 1e6, 2) for role in ended
        },
        "share_of_time_with_work_waiting_by_cell": waiting,
        "has_budget": all(limited),
    }


def wait_and_look(seconds: float, cells: Sequence[RunningCell]) -> dict[str, float]:
    """Return for each cell how often work waited there: what always has work is limited by nothing before it."""
    looked, found = 0, dict.fromkeys([cell.name for cell in cells], 0)
    links = {cell.name: redis.Redis.from_url(cell.redis_url) for cell in cells}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(0.1)
        looked += 1
        for name, link in links.items():
            found[name] += any(int(tokens) > 0 for tokens in link.hvals("cl:waiting"))
    for link in links.values():
        link.close()
    return {name: round(count / looked, 2) for name, count in found.items()}


def cpu_by_role(pids: Sequence[int]) -> dict[str, float]:
    """Return CPU seconds by role; the generator is this process."""
    return cpu_seconds([pid for pid in pids if pid != os.getpid()]) | {"generator": time.process_time()}


def redis_of(url: str) -> int:
    """Return the process of a Redis that this process started."""
    port = url.rpartition(":")[2].partition("/")[0]
    for pid in children(os.getpid()):
        if f":{port}" in (said := Path(f"/proc/{pid}/cmdline").read_bytes().decode()) or port in said.split("\0"):
            return pid
    raise RuntimeError(f"no Redis on port {port}")


def main() -> int:
    """Measure one cell and several, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=4, help="cells, compared with one")
    parser.add_argument("--budget", type=float, default=0.15, help="share of a CPU that each cell may use")
    parser.add_argument(QUICK, action="store_true", help="two cells for a second, no figures kept")
    given = parser.parse_args()
    counts = [2] if given.quick else [1, given.cells]
    said = (
        f"each cell (Redis, worker, keeper) may use {given.budget:.0%} of one CPU; API and generator have the rest of "
    )
    sys.stdout.write(f"{said}{len(cpu_slots())} CPUs\n")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in counts:
            runs.append(measure(number, given.budget, Path(folder) / f"of-{number}"))
            sys.stdout.write(json.dumps(runs[-1]) + "\n")
            sys.stdout.flush()
    growth = runs[-1]["items_per_s"] / max(1.0, runs[0]["items_per_s"])
    figures = {
        "growth": round(growth, 2),
        "cells": counts[-1],
        "budget_cpus_per_cell": given.budget,
        "cpus": len(cpu_slots()),
        "per_job": PER_JOB,
        "payload_bytes": PAYLOAD_BYTES,
        "runs": runs,
    }
    keep("cells", figures)
    sys.stdout.write(f"{counts[-1]} cells answer {growth:.2f} times as many items a second as one\n")
    return 0 if all(run["has_budget"] for run in runs) or is_quick() else 1


if __name__ == "__main__":
    sys.exit(main())
