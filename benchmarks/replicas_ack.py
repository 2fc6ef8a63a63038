"""What it costs that a job is accepted only once a replica of Redis holds it (CORELANE_REPLICAS_ACK).

    python benchmarks/replicas_ack.py [--quick]

A primary and a replica on this machine, and the submitter of the API on one event loop: first one submission at a time,
then 64 at a time, without and with the option, in the order off, on, on, off. Writes `results/replicas_ack.json`.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.runs import is_quick, keep
from benchmarks.simulated_cores import announce, simulated_item, submit
from corelane.broker.app import bell_envelope, make_celery
from corelane.cli.ports import free_port
from corelane.cli.redis_server import find_server, server_argv
from corelane.settings import Settings
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore
from corelane.store.link.link import AsyncLink
from corelane.store.link.replicas import open_gate
from corelane.submitting.submitter import Submitter

#: Submissions at a time, and how many in all.
AT_A_TIME = {1: 1000, 64: 20_000}

VERSION = "simulated@1"


@contextmanager
def replicated() -> Iterator[str]:
    """Start a primary and a replica that follows it; yield the primary's URL."""
    with tempfile.TemporaryDirectory() as folder:
        ports, servers = [free_port("127.0.0.1", 0) for _ in range(2)], []
        try:
            for place, port in enumerate(ports):
                (own := Path(folder) / str(place)).mkdir()
                follows = ("--replicaof", f"127.0.0.1 {ports[0]}", "--repl-diskless-sync-delay", "0") if place else ()
                argv = [*server_argv(find_server(), own, port), *follows]
                servers.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL))
                wait_until(port, "slave0" if place else "role", ports[0])
            yield f"redis://127.0.0.1:{ports[0]}/0"
        finally:
            for server in servers:
                server.terminate()
                server.wait(30)


def wait_until(port: int, word: str, primary: int) -> None:
    """Wait until a server answers, and the primary's INFO has a word."""
    for _ in range(600):
        try:
            with redis.Redis(port=port) as node, redis.Redis(port=primary) as raw:
                node.ping()
                found = raw.info("replication")
                if word in found and (word == "role" or found[word]["state"] == "online"):
                    return
        except redis.ConnectionError:
            pass
        time.sleep(0.05)
    raise TimeoutError("Redis did not start")


def measure(settings: Settings, at_a_time: int, count: int) -> dict[str, float]:
    """Submit so many jobs, so many at a time; return jobs a second and the time that one took, in milliseconds."""

    async def run() -> dict[str, float]:
        link, gate = AsyncLink(settings.redis_url), open_gate(settings)
        store = JobStore(link, settings, bell_envelope(make_celery(settings)), gate)
        submitter, item, taken, left = Submitter(store, Fleet(link), settings), simulated_item(60, 60), [], count

        async def go_on() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                began = time.perf_counter()
                await submit(submitter, VERSION, [item], "public")
                taken.append(1000 * (time.perf_counter() - began))

        began = time.perf_counter()
        await asyncio.gather(*(go_on() for _ in range(at_a_time)))
        lasted = time.perf_counter() - began
        await link.close()
        if gate is not None:
            await gate.close()
        cuts = statistics.quantiles(taken, n=100)
        return {"jobs_per_s": count / lasted, "p50_ms": cuts[49], "p99_ms": cuts[98]}

    return asyncio.run(run())


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few jobs, and no figures kept")
    parser.parse_args()
    figures: dict[str, Any] = {"cpus": os.cpu_count(), "runs": []}
    with replicated() as url:
        settings = Settings(redis_url=url, max_outstanding_tokens=10**9, max_owner_tokens=10**9, log_level="warning")
        for at_a_time, count in AT_A_TIME.items():
            for replicas in (0, 1) if is_quick() else (0, 1, 1, 0):
                announce(settings, "sim/0", VERSION)
                asked = settings.model_copy(update={"replicas_ack": replicas})
                found = measure(asked, at_a_time, 5 * at_a_time if is_quick() else count)
                run = {"at_a_time": at_a_time, "replicas_ack": replicas}
                figures["runs"].append(run | {name: round(value, 3) for name, value in found.items()})
    keep("replicas_ack", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
