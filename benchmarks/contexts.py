"""Many lone questions about one passage: stored once, beside the same passage sent with each question.

    python benchmarks/contexts.py [--questions 1000] [--long 20] [--rounds 2] [--quick]

Each question is a job of its own, from 16 callers who submit all and then wait for all. Passages of 10 kB and of 200 kB
are asked about with the null engine, which shows what everything around the model costs; and with the built-in model,
of the long passage ``--long`` questions, as each takes some 150 windows. Both ways are measured in turn. Bytes in Redis
are the most that it held more than before; tokenizations are those of all cores.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import redis
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.processes import cpu_seconds, descendants
from benchmarks.runs import Service, is_quick, keep, service
from corelane.client import Client
from corelane.client.endpoints import job_body
from corelane.plugins.lab.machine import read_machine
from corelane.settings import Settings

CALLERS = 16

SIZES = {"10 kB": 10_000, "200 kB": 200_000}
QUICK_SIZES = {"2 kB": 2_000}

#: Roles whose CPU time is shown.
ROLES = ("api", "redis", "worker")

SENTENCE = "In {year} the engineer {name} finished bridge number {number}, which is {metres} metres long. "
NAMES = ("Ada", "Zoë", "Grace", "Émilie", "Edith", "Marie", "Hedy", "Sofja")


def passage(size: int, salt: str) -> str:
    """Return a passage of so many bytes that no other run has asked about."""
    text = [f"This is the register {salt}. "]
    number = 0
    while sum(map(len, text[-1:])) and len("".join(text).encode()) < size:
        for _ in range(100):
            number += 1
            name = NAMES[number % len(NAMES)]
            text.append(SENTENCE.format(year=1800 + number % 200, name=name, number=number, metres=number * 7 % 997))
    return "".join(text).encode()[:size].decode(errors="ignore")


def contexts_read(running: Service) -> tuple[float, float]:
    """Return how many contexts all cores tokenized, and how many they had."""
    text = httpx2.get(f"{running.url}/metrics").text
    sums = {"corelane_core_contexts_read": 0.0, "corelane_core_contexts_hit": 0.0}
    for family in text_string_to_metric_families(text):
        if family.name in sums:
            sums[family.name] += sum(sample.value for sample in family.samples)
    read, hit = sums.values()
    return read, hit


def used_cpu(running: Service) -> dict[str, float]:
    """Return the CPU seconds of the service's processes so far."""
    return cpu_seconds(descendants(running.pid))


def measure(running: Service, text: str, questions: int, *, stored: bool) -> dict[str, Any]:
    """Ask about a passage, each question as a job, in one of the two ways."""
    raw = redis.Redis.from_url(running.redis_url)
    before_bytes = most_bytes = int(raw.info("memory")["used_memory"])
    read_before, cpu_before, began = contexts_read(running), used_cpu(running), time.perf_counter()
    sent = 0
    with Client(running.url) as client, ThreadPoolExecutor(CALLERS) as pool:
        about: dict[str, str] = {"context": text}
        if stored:
            about = {"context_id": client.put_context(text).id}
            sent += len(text.encode())
        items = [{"question": f"How long is bridge number {number}?", **about} for number in range(1, questions + 1)]
        sent += sum(len(job_body([item], {})) for item in items)
        jobs = []
        for number, job in enumerate(pool.map(lambda item: client.submit([item]), items)):
            jobs.append(job.id)
            if number % 20 == 0:
                most_bytes = max(most_bytes, int(raw.info("memory")["used_memory"]))
        ended = list(pool.map(client.wait, jobs))
        seconds = time.perf_counter() - began
        for job_id in jobs:
            client.delete(job_id)
    assert all(job.counts.succeeded == 1 for job in ended)
    cpu = {role: used_cpu(running).get(role, 0.0) - cpu_before.get(role, 0.0) for role in ROLES}
    time.sleep(2.5)  # two heartbeats, which bring the counters
    read, hit = (after - before for after, before in zip(contexts_read(running), read_before, strict=True))
    return {
        "items_per_s": questions / seconds,
        "bytes_sent": sent,
        "bytes_in_redis": most_bytes - before_bytes,
        "contexts_tokenized": read,
        "contexts_kept": hit,
        **{f"{role}_us_an_item": 1e6 * spent / questions for role, spent in cpu.items()},
    }


def measure_all(questions: int, long: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the medians of each engine, size and way."""
    targets = ("null",) if is_quick() else ("null", "cpu")
    for target in targets:
        with tempfile.TemporaryDirectory() as folder:
            model = "null" if target == "null" else Settings().model
            with service(Path(folder), target=target, model=model) as running:
                for size, most in (QUICK_SIZES if is_quick() else SIZES).items():
                    count = long if target == "cpu" and most > 100_000 else questions
                    measure(running, passage(most, "warm"), min(count, 16), stored=False)
                    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
                    for number in range(rounds):
                        for stored in (True, False) if number % 2 else (False, True):
                            text = passage(most, f"{target} {number} {stored}")
                            found[stored].append(measure(running, text, count, stored=stored))
                    for stored, runs in found.items():
                        median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                        yield {"engine": target, "passage": size, "stored": stored, "questions": count} | median


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        values = [f"{value:,.0f}" if isinstance(value, float) else str(value) for value in row.values()]
        lines.append("| " + " | ".join(values) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--long", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.questions, given.long, given.rounds = 8, 2, 1
    rows = list(measure_all(given.questions, given.long, given.rounds))
    print(table(rows))
    keep("contexts", {"machine": read_machine().model_dump(mode="json"), "rows": rows})


if __name__ == "__main__":
    main()
