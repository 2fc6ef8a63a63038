"""Lone questions beside a batch of the same caller: the slowest of them, against the slowest while nothing else runs.

    python benchmarks/own_batch.py [FILE.json.gz] [--quick]

One caller asks 15 lone questions, one by one, while nothing else runs; then submits 2,500 questions as one job,
asks the 15 again, and cancels the job. Without a file the questions are made up. CPU that other programs take makes
questions wait: rounds in which they took much are left out if there were quiet ones. Writes `results/own_batch.json`;
with `--quick` there is one round of a batch of 100, and nothing is written.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.mixed_load import QUIET_CPUS, foreign_cpu_s
from benchmarks.runs import keep, service
from corelane.cli.evaluate import read_document
from corelane.client import Client
from corelane.domain.jobs import Item, Options
from corelane.quality.squad import read_questions

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"
OPTIONS = Options(no_answer=False)

#: Lone questions of a phase, and questions of the batch.
LONE, BATCH = 15, 2_500

#: Both in a quick run.
QUICKLY = (4, 100)

ROUNDS = 4

#: Pause between two lone questions, in seconds.
PAUSE_S = 0.2


def made_up(count: int) -> list[Item]:
    """Questions with passages of SQuAD's mean length, no two the same."""
    filler = "All else that is said in this passage is of no importance to anybody who asks. " * 8
    return [Item(question="What is the number?", context=f"The number is {n}. {filler}") for n in range(count)]


def ask_one_by_one(client: Client, items: list[Item]) -> list[float]:
    """Seconds that each question took."""
    taken = []
    for item in items:
        began = time.perf_counter()
        client.ask(item.question, item.context or "", no_answer=False)
        taken.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return taken


def measure_round(client: Client, items: list[Item], number: int, lone: int, size: int) -> dict[str, Any]:
    """Ask lone questions without and with a batch of one's own."""
    asked = [items[(number * lone + n) % len(items)] for n in range(lone)]
    used, began = foreign_cpu_s(), time.perf_counter()
    alone = ask_one_by_one(client, asked)
    batch = client.submit((items * (size // len(items) + 1))[:size], options=OPTIONS)
    while client.get(batch.id).counts.succeeded < 20:
        time.sleep(0.05)
    beside = ask_one_by_one(client, asked)
    left = size - client.get(batch.id).counts.succeeded
    foreign = (foreign_cpu_s() - used) / (time.perf_counter() - began)
    client.cancel(batch.id)
    figures = {
        "slowest_alone_ms": round(1000 * max(alone), 1),
        "slowest_beside_ms": round(1000 * max(beside), 1),
        "median_alone_ms": round(1000 * statistics.median(alone), 1),
        "median_beside_ms": round(1000 * statistics.median(beside), 1),
        "ratio_of_slowest": round(max(beside) / max(alone), 2),
        "batch_left": left,
        "foreign_cpus": round(foreign, 2),
    }
    print(json.dumps(figures), flush=True)
    return figures


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of a small batch")
    arguments = parser.parse_args()
    items = made_up(BATCH)
    if arguments.file is not None:
        questions = read_questions(read_document(arguments.file)).questions[:BATCH]
        items = [Item(question=question.question, context=question.context) for question in questions]
    with service(DATA, log_level="warning") as running, Client(running.url) as client:
        lone, size = QUICKLY if arguments.quick else (LONE, BATCH)
        ask_one_by_one(client, items[: min(5, lone)])
        count = 1 if arguments.quick else ROUNDS
        rounds = [measure_round(client, items, number, lone, size) for number in range(count)]
    quiet = [each for each in rounds if each["foreign_cpus"] <= QUIET_CPUS]
    figures = {
        "ratio_of_slowest": statistics.median(each["ratio_of_slowest"] for each in quiet or rounds),
        "quiet_rounds": len(quiet),
        "lone_questions": lone,
        "batch_questions": size,
        "rounds": rounds,
    }
    print(json.dumps(figures, indent=2))
    keep("own_batch", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
