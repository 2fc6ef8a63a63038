"""What it saves and costs that equal questions share an answer.

    python benchmarks/reuse.py [--rounds 5] [--quick]

With the built-in model: 500 equal questions at once, by 64 connections, how many of them cores compute, and how long
all take, beside the same with reuse left out; then lone questions of 16 callers of which 30 % repeat earlier ones,
without and with a cache. With the null engine: what an item that equals no other costs, by process, with everything
off, with single flight and with the cache on, in turn. CPU is that of the service's processes.
"""

import argparse
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, ROOT, Serving, in_turn, serving
from benchmarks.connections import Connection, at_once
from benchmarks.runs import QUICK, is_quick, keep
from corelane.plugins.lab.machine import read_machine

#: Equal questions, and the connections that send them.
EQUAL, CONNECTIONS = 500, 64

#: Lone questions of the mix, the share that repeats, and callers.
MIXED, REPEATED, CALLERS = 600, 0.3, 16

#: Items of each measurement of the costs, by items of a job.
COSTS = {1: 1_500, 32: 19_200, 1000: 60_000}

CACHE: dict[str, object] = {"cache_bytes": 100_000_000}
MODES: dict[str, dict[str, object]] = {"off": {"reuse": False}, "single flight": {}, "cache": CACHE}

PASSAGE = (
    "Ada Lovelace wrote the notes on the analytical engine in 1843. They hold what is called the first program, a way "
    "to compute Bernoulli numbers, and the thought that such an engine could work on more than numbers: on music, say. "
)

#: No question of one run is that of another.
NUMBERS = itertools.count(int(time.time()) % 100_000 * 1_000)


def question(number: int) -> dict[str, str]:
    """Return a question that has no equal of another number."""
    return {"question": f"Who wrote the notes, and what is {number}?", "context": PASSAGE}


def ask_all(url: str, bodies: Sequence[bytes], connections: int, **headers: str) -> list[dict[str, Any]]:
    """Post every body once, by so many connections at once; return the jobs, which are final."""
    left, jobs, lock = iter(bodies), list[dict[str, Any]](), threading.Lock()

    def work(connection: Connection) -> None:
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                return
            job = connection.call("POST", "/v1/jobs", body, Prefer="wait=60", **headers)
            while job["status"] in ("queued", "running"):
                job = connection.call("GET", f"/v1/jobs/{job['id']}?wait=60")
            jobs.append(job)

    at_once(work, url, connections)
    return jobs


def computed(url: str) -> int:
    """Return the items that the cores counted so far, once they have told of all: they do so every second."""
    found = [-1]
    while len(found) < 4 or len(set(found[-3:])) > 1:
        with urllib.request.urlopen(f"{url}/metrics") as reply:
            text = reply.read().decode()
        found.append(sum(int(float(n)) for n in re.findall(r"^corelane_core_items_total\{.*\} (\S+)$", text, re.M)))
        time.sleep(0.8)
    return found[-1]


def measure_equal(running: Serving, count: int, **headers: str) -> dict[str, Any]:
    """Ask the same so many times at once."""
    body = orjson.dumps(question(next(NUMBERS)))
    before = computed(running.url)
    began = time.perf_counter()
    jobs = ask_all(running.url, [body] * count, min(count, CONNECTIONS), **headers)
    wall_s = time.perf_counter() - began
    answers = {str(job["results"][0]["answer"]) for job in jobs}
    assert {job["status"] for job in jobs} == {"succeeded"}
    assert len(answers) == 1
    reused = sum(job["usage"].get("reused", 0) for job in jobs)
    return {"jobs": len(jobs), "computed": computed(running.url) - before, "reused": reused, "wall_s": round(wall_s, 3)}


def mix(count: int, seed: int) -> list[bytes]:
    """Return lone questions of which a share equals an earlier one."""
    rng, asked = random.Random(seed), list[bytes]()
    for _ in range(count):
        again = asked and rng.random() < REPEATED
        asked.append(rng.choice(asked) if again else orjson.dumps(question(next(NUMBERS))))
    return asked


def measure_mix(running: Serving, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Ask a mix; return its speed, and what its answers cost."""
    cpu = running.cpu_s()
    began = time.perf_counter()
    jobs = ask_all(running.url, bodies, CALLERS)
    wall_s, after = time.perf_counter() - began, running.cpu_s()
    return {
        "questions_per_s": round(len(jobs) / wall_s, 1),
        "reused": sum(job["usage"].get("reused", 0) for job in jobs),
        "worker_cpu_ms_per_question": round(1000 * (after.get("worker", 0) - cpu.get("worker", 0)) / len(jobs), 2),
    }


def measure_cost(running: Serving, items: int, per_job: int) -> dict[str, float]:
    """Return the CPU µs of an item that has no equal, by role."""
    bodies = [
        orjson.dumps({"items": [question(next(NUMBERS)) for _ in range(per_job)]}) for _ in range(items // per_job)
    ]
    before = running.cpu_s()
    jobs = ask_all(running.url, bodies, 4)
    after = running.cpu_s()
    assert not any(job["usage"].get("reused", 0) for job in jobs)
    return {role: 1e6 * (after[role] - before.get(role, 0)) / items for role in after}


def with_modes(
    folder: Path,
    modes: dict[str, dict[str, object]],
    rounds: int,
    run: Callable[[Serving], dict[str, Any]],
    **also: object,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Serve in every mode at once; measure each in turn, and yield mode and figures."""
    with ExitStack() as stack:
        services = {
            name: stack.enter_context(serving(AFTER, ROOT, folder / name.replace(" ", "-"), **also, **changes))
            for name, changes in modes.items()
        }
        for running in services.values():
            run(running)
        for _, name in in_turn(list(services), rounds):
            yield name, run(services[name])


def means(found: Sequence[tuple[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the median of each figure, by mode."""
    modes = dict.fromkeys(name for name, _ in found)
    roles = dict.fromkeys(role for _, figures in found for role in figures)
    return {
        mode: {
            role: round(statistics.median(figures.get(role, 0.0) for name, figures in found if name == mode), 2)
            for role in roles
        }
        for mode in modes
    }


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(QUICK, action="store_true", help="a few questions, no figures kept")
    given = parser.parse_args()
    rounds, part = (1, 50) if is_quick() else (given.rounds, 1)
    figures: dict[str, Any] = {"machine": read_machine().model_dump(), "equal": [], "cost_us": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(AFTER, ROOT, folder / "model", log_level="warning") as running:
            ask_all(running.url, [orjson.dumps(question(next(NUMBERS))) for _ in range(64 // part)], 4)
            for _ in range(rounds):
                figures["equal"].append(measure_equal(running, EQUAL // part))
                figures["equal_left_out"] = measure_equal(running, EQUAL // part, Cache_Control="no-store")
                print(json.dumps([figures["equal"][-1], figures["equal_left_out"]]), flush=True)
        bodies = iter([mix(MIXED // part, seed) for seed in range(2 * rounds + 2)])
        modes: dict[str, dict[str, object]] = {"no cache": {}, "cache": CACHE}
        figures["mix"] = list(with_modes(folder, modes, rounds, lambda each: measure_mix(each, next(bodies))))
        for per_job, items in COSTS.items():
            count = max(items // part // per_job, 1) * per_job
            run = partial(measure_cost, items=count, per_job=per_job)
            found = with_modes(folder / str(per_job), MODES, rounds, run, target="null")
            figures["cost_us"][per_job] = means(list(found))
            print(per_job, json.dumps(figures["cost_us"][per_job], indent=2), flush=True)
    for line in figures["mix"]:
        print(json.dumps(line))
    keep("reuse", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
