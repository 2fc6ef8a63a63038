"""One API key floods the service with 100,000 items; what another key's questions then take, against an idle service.

    python benchmarks/flood.py [FILE.json.gz] [--limit N]

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
from corelane.cli.local import running_service
from corelane.cli.squad import Question

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

FLOOD_ITEMS = 100_000

#: Times idle and flood take turns, and requests of each kind in each turn.
ROUNDS, REQUESTS = 3, 60

#: Pause between two requests of the other key, in seconds.
PAUSE_S = 0.05

#: Questions in the other key's larger jobs.
JOB_QUESTIONS = 20


def item(question: Question) -> dict[str, str]:
    """A question as the API takes it."""
    return {"question": question.question, "context": question.context}


def start_flood(url: str, questions: list[Question]) -> str:
    """Hand in the flood as one job of lines, under a key of its own; its id once it runs."""

    def lines() -> Iterator[bytes]:
        asked = itertools.islice(itertools.cycle(questions), FLOOD_ITEMS)
        while block := list(itertools.islice(asked, 500)):
            yield b"".join(orjson.dumps(item(question), option=orjson.OPT_APPEND_NEWLINE) for question in block)

    connection = connect(url)
    headers = {"Content-Type": "application/x-ndjson", "Authorization": "Bearer flood"}
    connection.request("POST", "/v1/jobs", lines(), headers, encode_chunked=True)
    job = str(orjson.loads(connection.getresponse().read())["id"])
    polls = Connection(url)
    while polls.call("GET", f"/v1/jobs/{job}")["counts"]["succeeded"] < 50:
        time.sleep(0.1)
    return job


def ask(url: str, bodies: list[bytes]) -> list[float]:
    """Milliseconds each request takes, one after another."""
    connection = Connection(url)
    taken = []
    for body in bodies:
        began = time.perf_counter()
        job = connection.call("POST", "/v1/jobs", body, Prefer="wait=55", Authorization="Bearer other")
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
    lone = [orjson.dumps(item(question)) for question in questions[:REQUESTS]]
    jobs = [
        orjson.dumps({"items": [item(question) for question in questions[n * JOB_QUESTIONS :][:JOB_QUESTIONS]]})
        for n in range(REQUESTS // 6)
    ]
    taken: dict[str, list[float]] = {"lone idle": [], "lone flooded": [], "job idle": [], "job flooded": []}
    with running_service(DATA, log_level="warning") as url:
        ask(url, lone)
        for _ in range(ROUNDS):
            taken["lone idle"] += ask(url, lone)
            taken["job idle"] += ask(url, jobs)
            flood = start_flood(url, questions)
            taken["lone flooded"] += ask(url, lone)
            taken["job flooded"] += ask(url, jobs)
            Connection(url).call("POST", f"/v1/jobs/{flood}/cancel")
            time.sleep(1)
    figures = {
        "flood_items": FLOOD_ITEMS,
        "lone_question": describe(taken["lone idle"], taken["lone flooded"]),
        f"job_of_{JOB_QUESTIONS}": describe(taken["job idle"], taken["job flooded"]),
    }
    (HERE / "results" / "flood.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
