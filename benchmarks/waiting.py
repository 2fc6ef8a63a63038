"""How soon a waiting request hears of its job's end: from the commit to the answer's last byte, over HTTP.

    python benchmarks/waiting.py [JOBS] [--quick]

A Redis and an API of its own; the core is this process, which takes 10 ms for each job and notes when its commit is
done. With `Prefer: wait` on the submit, and with `?wait=` on a job submitted before. Writes `results/waiting.json`.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import redis

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.connections import Connection
from benchmarks.queue_plane import job_body
from benchmarks.runs import QUICK, is_quick, keep
from corelane.cli.ports import free_port
from corelane.cli.redis_server import find_server, server_argv
from corelane.settings import Settings
from corelane.store.dispatch import Dispatch, ExchangeRequest, Room, SliceResults
from corelane.store.fleet import Announcer
from corelane.store.plans import Plans

HERE = Path(__file__).parent

VERSION = "waiting@1"

#: Time the core takes for a job, and the pause between two jobs, in seconds.
WORK_S, PAUSE_S = 0.01, 0.02

#: Requests before those that are measured, and in a quick run.
WARM_UP, QUICK_WARM_UP = 20, 3


def await_answer(url: str, redis_url: str, path: str = "/livez") -> None:
    """Wait until Redis answers, and the API does so well."""
    for _ in range(300):
        try:
            redis.Redis.from_url(redis_url).ping()
            Connection(url).call("GET", path)
        except (redis.ConnectionError, OSError, RuntimeError):  # RuntimeError: it answers that it is not ready
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the API did not start")


def work(settings: Settings, commits: queue.SimpleQueue[float], stop: threading.Event) -> None:
    """Be a core: answer whatever comes after 10 ms, and tell when each commit was done."""
    announcer, core = Announcer(settings, "bench/0"), Dispatch(settings, "bench/0")
    Plans(settings, "bench/0", "").announce(VERSION, {}, ["default"])
    room, beaten, waits = Room(settings.claim_tokens), 0.0, False
    while not stop.is_set():
        if time.monotonic() - beaten > 1:
            announcer.beat({"state": "idle"}, [VERSION], [])
            beaten = time.monotonic()
        claim = core.exchange(ExchangeRequest(versions=[VERSION], room=room, linger=True, idle=True, wait=waits)).claim
        waits = claim is None
        if claim is None:
            continue
        time.sleep(WORK_S)
        outcomes = [
            SliceResults(ref, [{"index": ref.first, "id": None, "status": "succeeded"} for _ in range(ref.count)])
            for ref, _ in claim.refs
        ]
        core.exchange(ExchangeRequest(commits={claim.lease: outcomes}, room=room))
        commits.put(time.perf_counter())


def measure(url: str, commits: queue.SimpleQueue[float], jobs: int, by: str) -> list[float]:
    """Milliseconds from each commit to its answer, sorted."""
    connection, body, taken = Connection(url), job_body(1, 200), []
    warm_up = QUICK_WARM_UP if is_quick() else WARM_UP
    for number in range(warm_up + jobs):
        if by == "Prefer":
            job = connection.call("POST", "/v1/jobs", body, Prefer="wait=10")
        else:
            job = connection.call("POST", "/v1/jobs", body)
            job = connection.call("GET", f"{job['urls']['self']}?wait=10")
        answered = time.perf_counter()
        if job["status"] != "succeeded":
            raise RuntimeError(job)
        if number >= warm_up:
            taken.append(1000 * (answered - commits.get()))
        else:
            commits.get()
        time.sleep(PAUSE_S)
    return sorted(taken)


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="?", type=int, default=10 if is_quick() else 400)
    parser.add_argument(QUICK, action="store_true", help="few jobs, and no figures kept")
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder:
        redis_port, port = free_port("127.0.0.1", 0), free_port("127.0.0.1", 0)
        settings = Settings(redis_url=f"redis://127.0.0.1:{redis_port}/0", data_dir=Path(folder), log_level="warning")
        store = subprocess.Popen(server_argv(find_server(), Path(folder), redis_port), stdout=subprocess.DEVNULL)
        command = [sys.executable, "-m", "corelane", "api", "--port", str(port)]
        api = subprocess.Popen(command, env=settings.environment(port=port), cwd=HERE.parent)
        stop, commits = threading.Event(), queue.SimpleQueue[float]()
        worker = threading.Thread(target=work, args=(settings, commits, stop), daemon=True)
        try:
            await_answer(url := f"http://127.0.0.1:{port}", settings.redis_url)
            worker.start()
            await_answer(url, settings.redis_url, "/readyz")
            figures: dict[str, Any] = {"jobs": jobs, "work_ms": 1000 * WORK_S, "cpus": os.cpu_count()}
            for by in ("Prefer", "wait"):
                taken = measure(url, commits, jobs, by)
                at = {name: taken[int(len(taken) * share)] for name, share in (("p50", 0.5), ("p99", 0.99))}
                figures[f"after_commit_ms_by_{by.lower()}"] = {name: round(ms, 2) for name, ms in at.items()}
        finally:
            stop.set()
            worker.join(5)
            api.terminate()
            api.wait(30)
            store.terminate()
            store.wait(30)
    keep("waiting", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
