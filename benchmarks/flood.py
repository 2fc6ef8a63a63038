"""One API key floods the service with 100,000 items; what another key's questions then take, against an idle service.

    python benchmarks/flood.py [FILE.json.gz] [--limit N] [--quick]

Idle and flooded phases alternate in one run, with the built-in model. Writes `results/flood.json`.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.big_job import connect
from benchmarks.questions import read_arguments
from benchmarks.queue_plane import Connection
from benchmarks.runs import is_quick, keep, service
from corelane.quality.squad import Question

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

FLOOD_ITEMS = 100_000

#: The keys of both.
FLOOD, OTHER = "Bearer flood", "Bearer other"

#: Times idle and flood take turns, and requests of each kind in each turn.
ROUNDS, REQUESTS = 3, 60

#: The same three in a quick run.
QUICKLY = (100, 1, 4)

#: Pause between two requests of the other key, in seconds.
PAUSE_S = 0.05

#: Questions in the other key's larger jobs.
JOB_QUESTIONS = 20


def item(question: Question) -> dict[str, str]:
    """Return a question as the API takes it."""
    return {"question": question.question, "context": question.context}


def start_flood(url: str, questions: list[Question], items: int) -> str:
    """Hand in the flood as one job of lines, under a key of its own; its id once it runs."""

    def lines() -> Iterator[bytes]:
        asked = itertools.islice(itertools.cycle(questions), items)
        while block := list(itertools.islice(asked, 500)):
            yield b"".join(orjson.dumps(item(question), option=orjson.OPT_APPEND_NEWLINE) for question in block)

    connection = connect(url)
    headers = {"Content-Type": "application/x-ndjson", "Authorization": FLOOD}
    connection.request("POST", "/v1/jobs", lines(), headers, encode_chunked=True)
    job = str(orjson.loads(connection.getresponse().read())["id"])
    polls = Connection(url)
    while polls.call("GET", f"/v1/jobs/{job}", Authorization=FLOOD)["counts"]["succeeded"] < min(50, items):
        time.sleep(0.1)
    return job


def ask(url: str, bodies: list[bytes]) -> list[float]:
    """Milliseconds each request takes, one after another."""
    connection = Connection(url)
    taken = []
    for body in bodies:
        began = time.perf_counter()
        job = connection.call("POST", "/v1/jobs", body, Prefer="wait=55", Authorization=OTHER)
        taken.append(1000 * (time.perf_counter() - began))
        if job["status"] != "succeeded":
            raise RuntimeError(job)
        time.sleep(PAUSE_S)
    return taken


def describe(idle: list[float], flooded: list[float]) -> dict[str, Any]:
    """Percentiles of both, and their ratio."""
    p50, p95 = ([sorted(taken)[int(len(taken) * share)] for taken in (idle, flooded)] for share in (0.5, 0.95))
    return {
        "idle_p50_ms": round(p50[0], 1),
        "idle_p95_ms": round(p95[0], 1),
        "flooded_p50_ms": round(p50[1], 1),
        "flooded_p95_ms": round(p95[1], 1),
        "p95_ratio": round(p95[1] / p95[0], 2),
    }


def main() -> int:
    """Measure and keep the figures."""
    questions = read_arguments(__doc__)
    flood_items, rounds, requests = QUICKLY if is_quick() else (FLOOD_ITEMS, ROUNDS, REQUESTS)
    lone = [orjson.dumps(item(question)) for question in questions[:requests]]
    jobs = [
        orjson.dumps({"items": [item(question) for question in questions[n * JOB_QUESTIONS :][:JOB_QUESTIONS]]})
        for n in range(-(-requests // 6))
    ]
    taken: dict[str, list[float]] = {"lone idle": [], "lone flooded": [], "job idle": [], "job flooded": []}
    with service(DATA, log_level="warning") as running:
        url = running.url
        ask(url, lone)
        for _ in range(rounds):
            taken["lone idle"] += ask(url, lone)
            taken["job idle"] += ask(url, jobs)
            flood = start_flood(url, questions, flood_items)
            taken["lone flooded"] += ask(url, lone)
            taken["job flooded"] += ask(url, jobs)
            Connection(url).call("POST", f"/v1/jobs/{flood}/cancel", Authorization=FLOOD)
            time.sleep(0 if is_quick() else 1)
    figures = {
        "flood_items": flood_items,
        "lone_question": describe(taken["lone idle"], taken["lone flooded"]),
        f"job_of_{JOB_QUESTIONS}": describe(taken["job idle"], taken["job flooded"]),
    }
    keep("flood", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
