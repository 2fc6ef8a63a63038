"""The queue plane alone: the null engine behind the whole service, loaded over HTTP. `make bench-queue` runs it.

    python benchmarks/queue_plane.py [--quick]

For each job size and payload: items/s from the first submit to the last job final, and CPU µs per item by role.
For a lone item: time of `POST … Prefer: wait` on a warm, idle service. And plain Celery in the same run.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import plain_celery
from benchmarks.connections import Connection, at_once
from benchmarks.processes import cpu_seconds, descendants
from benchmarks.runs import Service, is_quick, keep, service
from corelane.engine.cores import cpu_slots

HERE = Path(__file__).parent

#: Connections that submit at the same time.
SUBMITTERS = 4

#: Items of each measurement, by items per job: enough for a few seconds each.
ITEMS = {1: 2_000, 32: 60_000, 1000: 200_000}

LONE_ITEMS = 300
PLAIN_ITEMS = 1_500


#: Stands for a number of its own in each request: equal questions would be computed once.
NUMBER, NUMBERS = b"########", itertools.count(10_000_000)


def job_body(items: int, payload_bytes: int) -> bytes:
    """Return a request of ``items`` items with contexts of about ``payload_bytes``, with a place for a number."""
    context = ("The number is 7. " * (payload_bytes // 17 + 1))[: max(payload_bytes - 60, 20)]
    return orjson.dumps(
        {"items": [{"id": str(n), "question": f"What is {n} of ########?", "context": context} for n in range(items)]}
    )


def numbered(body: bytes) -> bytes:
    """Return a request that equals no other."""
    return body.replace(NUMBER, b"%d" % next(NUMBERS))


def flood(url: str, items: int, per_job: int, payload_bytes: int) -> float:
    """Seconds from the first submit until every job is final."""
    body = job_body(per_job, payload_bytes)
    jobs = items // per_job

    def submit(connection: Connection) -> None:
        ids = [connection.call("POST", "/v1/jobs", numbered(body))["id"] for _ in range(jobs // SUBMITTERS)]
        for job in ids:
            while connection.call("GET", f"/v1/jobs/{job}?wait=30")["status"] != "succeeded":
                pass

    began = time.perf_counter()
    at_once(submit, url, SUBMITTERS)
    return time.perf_counter() - began


def lone(url: str, items: int) -> list[float]:
    """Milliseconds of single questions, one after another with a little time between."""
    connection = Connection(url)
    body = job_body(1, 200)
    taken = []
    for number in range(items + 20):
        began = time.perf_counter()
        connection.call("POST", "/v1/jobs", numbered(body), Prefer="wait=10")
        if number >= 20:
            taken.append(1000 * (time.perf_counter() - began))
        time.sleep(0.01)
    return sorted(taken)


def measure(running: Service) -> dict[str, Any]:
    """Every figure of one service."""
    url, pids, quick = running.url, descendants(running.pid), is_quick()
    flood(url, *((80, 20) if quick else (20_000, 1000)), 200)
    taken = lone(url, 10 if quick else LONE_ITEMS)
    figures: dict[str, Any] = {
        "lone_p50_ms": statistics.median(taken),
        "lone_p99_ms": taken[int(len(taken) * 0.99)],
        "runs": [],
    }
    sizes = [(20, 200)] if quick else [(per_job, size) for size in (200, 2_000, 20_000) for per_job in (1, 32, 1000)]
    for per_job, payload_bytes in sizes:
        if per_job * payload_bytes > 8_000_000:
            per_job = 8_000_000 // payload_bytes
        jobs = max(ITEMS.get(per_job, 20_000) * 200 // payload_bytes, 1_000) // per_job
        items = (1 if quick else max(jobs // SUBMITTERS, 2)) * SUBMITTERS * per_job
        before = cpu_seconds(pids)
        elapsed = flood(url, items, per_job, payload_bytes)
        after = cpu_seconds(pids)
        cpu = {role: round((after[role] - before[role]) / items * 1e6, 1) for role in after}
        run = {"per_job": per_job, "payload_bytes": payload_bytes, "items": items, "items_per_s": items / elapsed}
        figures["runs"].append({**run, "us_cpu_per_item": round(sum(cpu.values()), 1), "us_cpu_by_role": cpu})
        print(json.dumps(figures["runs"][-1]), flush=True)
    return figures


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small jobs, no figures kept")
    parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), target="null", model="null", log_level="warning") as running,
    ):
        figures = measure(running)
        items = 50 if is_quick() else PLAIN_ITEMS
        figures["plain_celery_items_per_s"] = plain_celery.measure(running.redis_url, items, len(cpu_slots()))
    best = next((run for run in figures["runs"] if run["per_job"] == 1000), figures["runs"][0])
    figures = {"items_per_s": best["items_per_s"], "us_cpu_per_item": best["us_cpu_per_item"], **figures}
    keep("queue", figures)
    print(json.dumps({key: value for key, value in figures.items() if key != "runs"}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
