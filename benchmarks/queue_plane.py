"""The queue plane alone: the null engine, which answers at no cost, behind the whole service, loaded over HTTP.

    python benchmarks/queue_plane.py [--before CHECKOUT] [--rounds 3] [--sizes 1000,32,1] [--payloads 200,2000]
        [--quick]

For each number of items a job and each payload in bytes: items/s from the first submit to the last job final, and CPU
µs an item by role. For a lone item: the time of `POST … Prefer: wait` on a warm, idle service. Load and service share
the machine.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import (
    Connection,
    Figures,
    Serving,
    at_once,
    checkouts,
    cpu_us_since,
    is_quick,
    measure_in_turn,
    parser_of,
    percentile,
    serving,
)

#: Connections that submit at the same time.
SUBMITTERS = 4

#: Items of a measurement by items a job, of 200 bytes each: enough for a few seconds.
ITEMS = {1: 2_000, 32: 60_000, 1000: 200_000}

#: Bytes of a request at most; larger jobs are cut.
MOST_BYTES = 8_000_000

LONE_ITEMS = 300

#: A placeholder: each request has another number here.
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


def flood(url: str, jobs: int, per_job: int, payload_bytes: int) -> float:
    """Return the seconds from the first submit until every job is final."""
    body = job_body(per_job, payload_bytes)

    def submit() -> None:
        connection = Connection(url)
        ids = [connection.call("POST", "/v1/jobs", numbered(body))["id"] for _ in range(jobs // SUBMITTERS)]
        for job in ids:
            if connection.finish(job)["status"] != "succeeded":
                raise RuntimeError(f"{job} did not succeed")

    began = time.perf_counter()
    at_once(submit, SUBMITTERS)
    return time.perf_counter() - began


def lone(url: str, items: int) -> Figures:
    """Return how long single questions take, one after another with a little time between."""
    connection, body, taken = Connection(url), job_body(1, 200), []
    for _ in range(items + 20):
        began = time.perf_counter()
        connection.call("POST", "/v1/jobs", numbered(body), Prefer="wait=10")
        taken.append(1000 * (time.perf_counter() - began))
        time.sleep(0.01)
    return {"lone_p50_ms": percentile(taken[20:], 50), "lone_p99_ms": percentile(taken[20:], 99)}


def measure(running: Serving, sizes: list[int], payloads: list[int]) -> Figures:
    """Return every figure of one service."""
    flood(running.url, *((4, 20) if is_quick() else (20, 1000)), 200)
    figures = lone(running.url, 10 if is_quick() else LONE_ITEMS)
    for payload_bytes, wanted in itertools.product(payloads, sizes):
        per_job = min(wanted, MOST_BYTES // payload_bytes)
        jobs = max(ITEMS.get(wanted, 20_000) * 200 // payload_bytes, 1_000) // per_job
        jobs = SUBMITTERS * (1 if is_quick() else max(jobs // SUBMITTERS, 2))
        items, name = jobs * per_job, f"{per_job}x{payload_bytes}B_"
        before = running.cpu_s()
        figures[f"{name}items_per_s"] = items / flood(running.url, jobs, per_job, payload_bytes)
        figures |= cpu_us_since(before, running, items, name)
    return figures


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--sizes", default="20" if is_quick() else "1000,32,1", help="items a job")
    parser.add_argument("--payloads", default="200" if is_quick() else "200,2000", help="bytes an item")
    options = parser.parse_args()
    sizes, payloads = ([int(each) for each in given.split(",")] for given in (options.sizes, options.payloads))
    states = checkouts(options.before)
    with tempfile.TemporaryDirectory(prefix="queue-") as folder:

        def measured(name: str) -> Figures:
            with serving(Path(folder) / name, name, states[name], target="null", model="null") as running:
                return measure(running, sizes, payloads)

        measure_in_turn(list(states), options.rounds, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
