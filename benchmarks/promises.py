"""How well promises hold: jobs of random size from two API keys, and when each was done against what it was told.

python benchmarks/promises.py [FILE.json.gz] [--limit N] [--quick]

Seeded, with the built-in model. Writes `results/promises.json`.
"""

import json
import random
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import item, read_arguments
from benchmarks.queue_plane import Connection
from benchmarks.runs import is_quick, keep, service

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

JOBS = 40

#: Largest job, in questions.
MOST_QUESTIONS = 150

#: Mean time between two jobs, in seconds: a little more work than two slow cores can do, so that jobs wait.
MEAN_PAUSE_S = 1.0

#: Jobs, questions and pause of a quick run.
QUICKLY = (4, 5, 0.05)


def seconds_between(start: str, end: str) -> float:
    """Seconds from one time of a job to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def main() -> int:
    """Measure and keep the figures."""
    questions = read_arguments(__doc__)
    rng = random.Random(1)
    jobs, most, pause_s = QUICKLY if is_quick() else (JOBS, MOST_QUESTIONS, MEAN_PAUSE_S)

    def body() -> bytes:
        start, count = rng.randrange(len(questions)), rng.randint(1, most)
        chosen = (questions * 2)[start : start + count]
        return orjson.dumps({"items": [item(question) for question in chosen]})

    told: list[dict[str, Any]] = []
    keys: list[str] = []
    with service(DATA, log_level="warning") as running:
        connection = Connection(running.url)
        # Nothing is promised before the cores' speed is known.
        while connection.call("POST", "/v1/jobs", body(), Prefer="wait=55")["promise"]["finish_at"] is None:
            time.sleep(0.1)
        for _ in range(jobs):
            keys.append(f"Bearer {rng.choice(('one', 'two'))}")
            told.append(connection.call("POST", "/v1/jobs", body(), Authorization=keys[-1]))
            time.sleep(rng.expovariate(1 / pause_s))
        ended = []
        for job, key in zip(told, keys, strict=True):
            path = f"/v1/jobs/{job['id']}?wait=30"
            while (now := connection.call("GET", path, Authorization=key))["finished_at"] is None:
                pass
            ended.append(now)
    inside, errors = 0, []
    for before, after in zip(told, ended, strict=True):
        promise, created = before["promise"], before["created_at"]
        inside += promise["earliest_at"] <= after["finished_at"] <= promise["latest_at"]
        taken = seconds_between(created, after["finished_at"])
        errors.append(seconds_between(created, promise["finish_at"]) / taken - 1)
    figures = {
        "jobs": jobs,
        "inside_the_interval": inside / jobs,
        "median_error": round(statistics.median(errors), 3),
        "median_absolute_error": round(statistics.median(map(abs, errors)), 3),
    }
    keep("promises", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
