"""One API process with many open connections: 200 long polls and 50 streams of events, while jobs are submitted.

    python benchmarks/open_connections.py [--seconds 90] [--polls 200] [--streams 50] [--rate 20] [--quick]

The null engine behind the whole service. Long polls wait for jobs that stay open for the whole run, and ask again when
their wait is over; streams follow the same jobs. Meanwhile, at a steady rate, one-item jobs are submitted and /livez is
asked. Latencies count from the moment a request was due, so that one that had to wait for its turn is not flattered.
Every ten seconds: p50, p95, p99 of both, and what the API process holds in memory.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.processes import descendants, role_of
from benchmarks.runs import QUICK, Service, is_quick, keep, service

HERE = Path(__file__).parent

#: Figures are printed so often, in seconds.
REPORT_S = 10.0

#: What is promised, in milliseconds.
SUBMIT_P95_MS, LIVEZ_P99_MS = 50, 50

#: Jobs that the long polls and streams share, results of each that may wait to be dropped, and how one of them goes on:
#: every second so many results of the next job are dropped.
HELD_JOBS, WINDOW, DROP_S, DROP_ITEMS = 50, 1000, 1.0, 200

#: Everything is open, and the jobs stand at their window, after this, in seconds.
SETTLE_S = 5.0

#: Seconds, polls, streams and time to settle of a quick run.
QUICKLY = (1.0, 8, 4, 0.2)

#: The same two numbers, of jobs and of results, in a quick run.
QUICK_HELD = (1, 1000)

ITEM = {"question": "What is the number?", "context": "The number is 7. " * 8}


@dataclass
class Figures:
    """Latencies of one kind of request, in milliseconds, those since the last report apart."""

    all: list[float] = field(default_factory=list)
    lately: list[float] = field(default_factory=list)

    def add(self, milliseconds: float) -> None:
        """Note one."""
        self.all.append(milliseconds)
        self.lately.append(milliseconds)

    def report(self) -> dict[str, float]:
        """Those since the last report."""
        lately, self.lately = self.lately, []
        return summary(lately)


def summary(taken: list[float]) -> dict[str, float]:
    """Percentiles."""
    if len(taken) < 2:
        return {"n": len(taken)}
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return {"n": len(taken), "p50": round(cuts[49], 1), "p95": round(cuts[94], 1), "p99": round(cuts[98], 1)}


def resident_mb(pid: int) -> float:
    """Return the memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def api_pid(running: Service) -> int:
    """Return the API process of a service."""
    [pid] = [pid for pid in descendants(running.pid) if role_of(pid) == "api"]
    return pid


async def at_a_rate(rate: float, seconds: float, figures: Figures, act: Callable[[], Awaitable[object]]) -> None:
    """Do something so many times a second, whether or not the last one is done; its time from when it was due."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def one(due: float) -> None:
        await act()
        figures.add(1000 * (clock() - due))

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - clock()))
            group.create_task(one(due))


async def keep_polling(client: httpx2.AsyncClient, job: str, counts: dict[str, int]) -> None:
    """Wait for a job, again and again."""
    while True:
        response = await client.get(f"/v1/jobs/{job}", params={"wait": 20})
        response.raise_for_status()
        counts["polls"] += 1


async def keep_following(client: httpx2.AsyncClient, job: str, counts: dict[str, int]) -> None:
    """Follow a job's events, again and again."""
    while True:
        async with client.stream("GET", f"/v1/jobs/{job}/events") as response:
            response.raise_for_status()
            counts["streams_opened"] += 1
            async for piece in response.aiter_bytes():
                counts["stream_bytes"] += len(piece)


async def measure(running: Service, arguments: argparse.Namespace) -> dict[str, Any]:
    """Open everything, ask at a steady rate, and report over time."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    pid, counts = api_pid(running), {"polls": 0, "streams_opened": 0, "stream_bytes": 0}
    submits, livez, memory = Figures(), Figures(), list[float]()
    async with (
        httpx2.AsyncClient(base_url=running.url, timeout=70, limits=limits) as held,
        httpx2.AsyncClient(base_url=running.url, timeout=70, limits=limits) as asking,
    ):
        jobs = await hold_jobs(held, arguments.seconds)
        waiters = [asyncio.create_task(keep_polling(held, jobs[n % len(jobs)], counts)) for n in range(arguments.polls)]
        waiters += [
            asyncio.create_task(keep_following(held, jobs[n % len(jobs)], counts)) for n in range(arguments.streams)
        ]
        waiters.append(asyncio.create_task(keep_dropping(held, jobs)))
        await asyncio.sleep(arguments.settle_s)

        async def submit() -> None:
            (await asking.post("/v1/jobs", json=ITEM)).raise_for_status()

        async def live() -> None:
            (await asking.get("/livez")).raise_for_status()

        async def report() -> None:
            while True:
                await asyncio.sleep(REPORT_S)
                memory.append(resident_mb(pid))
                line = {"submit_ms": submits.report(), "livez_ms": livez.report(), "api_mb": memory[-1], **counts}
                print(json.dumps(line), flush=True)

        reporting = asyncio.create_task(report())
        await asyncio.gather(
            at_a_rate(arguments.rate, arguments.seconds, submits, submit),
            at_a_rate(arguments.rate, arguments.seconds, livez, live),
        )
        broken = [waiter for waiter in waiters if waiter.done()]
        for task in (reporting, *waiters):
            task.cancel()
        await asyncio.gather(reporting, *waiters, return_exceptions=True)
        for job in jobs:
            (await asking.post(f"/v1/jobs/{job}/cancel")).raise_for_status()
    if broken:
        raise RuntimeError(f"{len(broken)} of those who waited gave up: {broken[0].exception()!r}")
    return {"submit_ms": summary(submits.all), "livez_ms": summary(livez.all), "api_mb": memory}


async def hold_jobs(client: httpx2.AsyncClient, seconds: float) -> list[str]:
    """Jobs that stay running: their results wait to be dropped, and no more items are fed meanwhile."""
    held, window = QUICK_HELD if is_quick() else (HELD_JOBS, WINDOW)
    drops = 2 + math.ceil(seconds / DROP_S / held)
    head = {"contexts": {"c": ITEM["context"]}, "results_window": window}
    line = {"question": ITEM["question"], "context_id": "c"}
    lines = [orjson.dumps(head), *[orjson.dumps(line)] * (2 * window + drops * DROP_ITEMS)]
    headers = {"Content-Type": "application/x-ndjson"}
    jobs = []
    for _ in range(held):
        response = await client.post("/v1/jobs", content=b"\n".join(lines), headers=headers)
        response.raise_for_status()
        jobs.append(response.json()["id"])
    return jobs


async def keep_dropping(client: httpx2.AsyncClient, jobs: list[str]) -> None:
    """Drop results of one job after the other, so that each goes on for a little and streams have news."""
    for number in itertools.count():
        job, before = jobs[number % len(jobs)], (number // len(jobs) + 1) * DROP_ITEMS
        (await client.delete(f"/v1/jobs/{job}/results", params={"before": before})).raise_for_status()
        await asyncio.sleep(DROP_S)


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seconds, polls, streams, settle_s = QUICKLY if is_quick() else (90.0, 200, 50, SETTLE_S)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--polls", type=int, default=polls)
    parser.add_argument("--streams", type=int, default=streams)
    parser.add_argument(QUICK, action="store_true", help="a second, few connections, no promise and no figures kept")
    parser.add_argument("--rate", type=float, default=20, help="submits, and questions to /livez, a second")
    parser.set_defaults(settle_s=settle_s)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), target="null", model="null", log_level="warning", api_processes=1) as running,
    ):
        figures = asyncio.run(measure(running, arguments))
    keep("open_connections", figures)
    print(json.dumps(figures, indent=2))
    kept = figures["submit_ms"]["p95"] < SUBMIT_P95_MS and figures["livez_ms"]["p99"] < LIVEZ_P99_MS
    print("kept" if kept else "NOT kept", f"submit p95 < {SUBMIT_P95_MS} ms, /livez p99 < {LIVEZ_P99_MS} ms")
    return 0 if kept or is_quick() else 1


if __name__ == "__main__":
    sys.exit(main())
