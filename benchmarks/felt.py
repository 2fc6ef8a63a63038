"""What people feel: lone questions of one, 16 and 64 callers, jobs of 20 on idle cores, and how near they come to bulk.

    python benchmarks/felt.py [--before CHECKOUT] [--rounds 3 | --short] [--seconds 8] [--quick]

The built-in model on all cores, questions of the public SQuAD test file. With ``--before`` the service of another
checkout is measured in turn with this one, by the same callers. CPU is that of the service's processes.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, Serving, checkouts, in_turn, serving
from benchmarks.options import parser_of, rounds_of
from benchmarks.questions import item, questions_of
from benchmarks.runs import is_quick, keep
from corelane.client import Client
from corelane.plugins.lab.figures import summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.http import JSON_TYPE, Connections
from corelane.plugins.lab.load import CORELANE_SENDER, Plan
from corelane.plugins.lab.machine import read_machine
from corelane.plugins.lab.schema import Load
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Questions

#: Callers who each send their next question once the last is answered.
CALLERS = (1, 16, 64)

#: Questions of a bulk job, and bulk jobs measured.
BULK_ITEMS, BULK_JOBS = 256, 2

#: Questions of a small job, and small jobs measured, one after the other.
SMALL_ITEMS, SMALL_JOBS = 20, 12

#: Lone questions whose parts are compared with their whole time.
PARTED = 60

OPTIONS = {"no_answer": False}


@dataclass
class Round:
    """What one service did in one round."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)


def callers(running: Serving, asked: Questions, count: int, seconds: float) -> dict[str, float]:
    """Return speed, latency and CPU of lone questions of so many callers."""
    plan = Plan(
        load=Load(kind="closed", concurrency=count),
        way="question",
        hearing="wait",
        items_per_job=1,
        warmup_s=1.0,
        duration_s=seconds,
        processes=1,
        sender=CORELANE_SENDER,
    )
    before = running.cpu_s()
    measured = run_load(Target(running.url, options=OPTIONS), asked, plan)
    used = {role: spent - before.get(role, 0.0) for role, spent in running.cpu_s().items()}
    figures = summarise(measured, answers=measured.answers)
    done = max(1, len(measured.requests))
    assert figures.latency is not None
    found = {
        f"callers_{count}_per_s": figures.items_per_s,
        f"callers_{count}_p50_ms": 1000 * figures.latency.p50,
        f"callers_{count}_p95_ms": 1000 * figures.latency.p95,
    }
    return found | {f"callers_{count}_{role}_us": 1e6 * spent / done for role, spent in used.items()}


def parts(client: Client, asked: Questions) -> dict[str, float]:
    """Return the median of lone questions' whole time, of the model's part, and of what is beside the model."""
    wall, model = [], []
    for question in asked.asked[: 2 if is_quick() else PARTED]:
        began = time.perf_counter()
        job = client.submit([item(question)], options=OPTIONS, wait_s=10.0)
        wall.append(time.perf_counter() - began)
        assert job.timing is not None
        model.append(job.timing.compute_s)
    return medians_of_parts("lone", wall, model)


async def parts_on_the_wire(url: str, asked: Questions) -> dict[str, float]:
    """Return the same for a caller that spends next to nothing itself: requests are bytes before they are timed."""
    connections = Connections(url)
    headers = JSON_TYPE | {"Prefer": "wait=10"}
    wall, model = [], []
    await connections.open(1)
    for question in asked.asked[: 2 if is_quick() else PARTED]:
        body = orjson.dumps(item(question) | {"options": OPTIONS})
        began = time.perf_counter()
        response = await connections.exchange("POST", "/v1/jobs", body, headers)
        wall.append(time.perf_counter() - began)
        model.append(response.json()["timing"]["compute_s"])
    await connections.close()
    return medians_of_parts("lone_wire", wall, model)


def medians_of_parts(name: str, wall: list[float], model: list[float]) -> dict[str, float]:
    """Return the medians in ms of whole times, of the model's, and of what is beside the model."""
    beside = [all_ - ran for all_, ran in zip(wall, model, strict=True)]
    return {
        f"{name}_p50_ms": 1000 * statistics.median(wall),
        f"{name}_model_ms": 1000 * statistics.median(model),
        f"{name}_beside_model_ms": 1000 * statistics.median(beside),
    }


def jobs(client: Client, asked: Questions, items: int, count: int) -> list[float]:
    """Return the seconds that jobs took, one after the other."""
    taken = []
    for number in range(count):
        first = number * items % max(1, len(asked.asked) - items)
        body = [item(question) for question in asked.asked[first : first + items]]
        began = time.perf_counter()
        job = client.submit(body, options=OPTIONS)
        client.wait(job.id)
        taken.append(time.perf_counter() - began)
    return taken


def measure(running: Serving, asked: Questions, seconds: float) -> Round:
    """Measure everything of one service."""
    found = Round(running.name)
    with Client(running.url) as client:
        jobs(client, asked, 2 if is_quick() else 64, 1)
        found.figures |= parts(client, asked)
        found.figures |= asyncio.run(parts_on_the_wire(running.url, asked))
        small = jobs(client, asked, 2 if is_quick() else SMALL_ITEMS, 2 if is_quick() else SMALL_JOBS)
        found.figures["job_of_20_s"] = statistics.median(small)
        for count in CALLERS[:1] if is_quick() else CALLERS:
            found.figures |= callers(running, asked, count, seconds)
        items = 4 if is_quick() else BULK_ITEMS
        before = running.cpu_s()
        bulk = jobs(client, asked, items, 1 if is_quick() else BULK_JOBS)
        done = items * len(bulk)
        found.figures["bulk_per_s"] = done / sum(bulk)
        for role, spent in running.cpu_s().items():
            found.figures[f"bulk_{role}_us"] = 1e6 * (spent - before.get(role, 0.0)) / done
    for count in CALLERS:
        if (speed := found.figures.get(f"callers_{count}_per_s")) is not None:
            found.figures[f"callers_{count}_of_bulk"] = speed / found.figures["bulk_per_s"]
    return found


def medians(rounds: list[Round]) -> dict[str, dict[str, float]]:
    """Return the medians of the rounds, by service and figure."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(each.name for each in rounds):
        mine = [each.figures for each in rounds if each.name == name]
        found[name] = {key: statistics.median(each[key] for each in mine if key in each) for key in mine[0]}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Return the figures as a Markdown table, a row a figure."""
    names = list(found)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for key in found[AFTER]:
        cells = [f"{found[name][key]:.4g}" if key in found[name] else "–" for name in names]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print and keep the figures."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each number of callers")
    options = parser.parse_args()
    asked = Questions(questions_of(options.file), "squad-test-public-v1.1")
    found = checkouts(options.before)
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="felt-") as folder:
        for number, name in in_turn(list(found), rounds_of(options)):
            data = options.data if name == AFTER else Path(folder) / name
            with serving(name, found[name], data) as running:
                rounds.append(measure(running, asked, 0.3 if is_quick() else options.seconds))
            print(f"round {number + 1}  {name}  {rounds[-1].figures}", flush=True)
    summary = medians(rounds)
    figures: dict[str, Any] = {"machine": read_machine().model_dump(mode="json"), "medians": summary}
    figures["rounds"] = [{"name": each.name} | each.figures for each in rounds]
    keep("felt", figures)
    print(table(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
