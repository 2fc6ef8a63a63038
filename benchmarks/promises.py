"""How well promises hold: jobs of random size from two API keys, and when each was done against what it was told.

python benchmarks/promises.py [FILE.json.gz] [--limit N]

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

from benchmarks.flood import item
from benchmarks.questions import read_arguments
from benchmarks.queue_plane import Connection
from corelane.cli.local import running_service

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

JOBS = 40

#: Largest job, in questions.
MOST_QUESTIONS = 150

#: Mean time between two jobs, in seconds: a little more work than two slow cores can do, so that jobs wait.
MEAN_PAUSE_S = 1.0


def seconds_between(start: str, end: str) -> float:
    """Seconds from one time of a job to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def main() -> int:
    """Measure and keep the figures."""
    questions = read_arguments(__doc__)
    rng = random.Random(1)

    def body() -> bytes:
        start, count = rng.randrange(len(questions)), rng.randint(1, MOST_QUESTIONS)
        chosen = (questions * 2)[start : start + count]
        return orjson.dumps({"items": [item(question) for question in chosen]})

    told: list[dict[str, Any]] = []
    with running_service(DATA, log_level="warning") as url:
        connection = Connection(url)
        connection.call("POST", "/v1/jobs", body(), Prefer="wait=55")
        for _ in range(JOBS):
            key = rng.choice(("one", "two"))
            told.append(connection.call("POST", "/v1/jobs", body(), Authorization=f"Bearer {key}"))
            time.sleep(rng.expovariate(1 / MEAN_PAUSE_S))
        ended = []
        for job in told:
            while (now := connection.call("GET", f"/v1/jobs/{job['id']}?wait=30"))["finished_at"] is None:
                pass
            ended.append(now)
    inside, errors = 0, []
    for before, after in zip(told, ended, strict=True):
        promise, created = before["promise"], before["created_at"]
        inside += promise["earliest_at"] <= after["finished_at"] <= promise["latest_at"]
        taken = seconds_between(created, after["finished_at"])
        errors.append(seconds_between(created, promise["finish_at"]) / taken - 1)
    figures = {
        "jobs": JOBS,
        "inside_the_interval": inside / JOBS,
        "median_error": round(statistics.median(errors), 3),
        "median_absolute_error": round(statistics.median(map(abs, errors)), 3),
    }
    (HERE / "results" / "promises.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
