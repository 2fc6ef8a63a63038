"""How well promises hold: 1,000 mixed jobs of three API keys, and when each was done against what it was told.

    python benchmarks/promises.py [FILE.json.gz] [--jobs N] [--before CHECKOUT] [--quick]

Lone questions, jobs of 2 to 150 questions and documents come at random, first at a third of the service's speed, then
at eight tenths of it, then faster than it answers. Seeded, with the built-in model. An interval should hold nine in
ten. Of each group of jobs: the share inside, before and after its interval, the median of the width (late end over
early end, from the submission), and how far off the expected time was. Writes `results/promises.json`.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, Serving, checkouts, serving
from benchmarks.connections import Connection
from benchmarks.options import parser_of
from benchmarks.questions import item, questions_of
from benchmarks.runs import is_quick, keep
from corelane.domain.squad import Question

JOBS, QUICK_JOBS = 1000, 6

#: What part of the jobs comes at which part of the speed that one large job ran at.
LOADS = {"a third": (0.3, 0.33), "eight tenths": (0.4, 0.8), "too fast": (0.3, 1.15)}

#: Questions of a job, by the part of the jobs: at least, at most. A document is one question on many passages.
SIZES = {"lone": (0.5, 1, 1), "few": (0.3, 2, 20), "some": (0.15, 21, 60), "many": (0.04, 61, 150)}
DOCUMENT, PASSAGES = "document", (8, 40)

#: Questions of the job that tells the speed, and of a quick run.
PROBE, QUICK_PROBE = 200, 4

KEYS = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Told:
    """A job with what it was promised, and when it ended."""

    load: str
    size: str
    expected_s: float
    earliest_s: float
    latest_s: float
    took_s: float

    @property
    def is_early(self) -> bool:
        """Whether it ended before its interval."""
        return self.took_s < self.earliest_s

    @property
    def is_late(self) -> bool:
        """Whether it ended after its interval."""
        return self.took_s > self.latest_s


def seconds_between(start: str, end: str) -> float:
    """Seconds from one time of a job to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def draw(rng: random.Random, questions: Sequence[Question]) -> tuple[str, list[dict[str, str]]]:
    """Return the size of a job and its items."""
    size = rng.choices([*SIZES, DOCUMENT], [*(part for part, *_ in SIZES.values()), 0.01])[0]
    if size == DOCUMENT and not is_quick():
        chosen = rng.choices(questions, k=rng.randint(*PASSAGES))
        return size, [{"question": chosen[0].question, "context": "\n\n".join(each.context for each in chosen)}]
    _, least, most = SIZES.get(size, SIZES["lone"])
    count = 1 if is_quick() else rng.randint(least, most)
    return size, [item(question) for question in rng.choices(questions, k=count)]


def run_job(connection: Connection, items: list[dict[str, str]]) -> float:
    """Return the seconds that a job takes."""
    began = time.perf_counter()
    job = connection.call("POST", "/v1/jobs", orjson.dumps({"items": items}))
    wait_for(connection, job["id"], None)
    return time.perf_counter() - began


def wait_for(connection: Connection, job: str, key: str | None) -> dict[str, Any]:
    """Return a job once it is over."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    while (found := connection.call("GET", f"/v1/jobs/{job}?wait=30", None, **headers))["finished_at"] is None:
        pass
    return dict(found)


def measure(running: Serving, questions: Sequence[Question], count: int, seed: int) -> list[Told]:
    """Submit jobs and return what became of their promises."""
    rng, connection = random.Random(seed), Connection(running.url)
    probe = [item(question) for question in (list(questions) * 2)[: QUICK_PROBE if is_quick() else PROBE]]
    run_job(connection, probe)
    speed = len(probe) / run_job(connection, probe)
    # Nothing is promised before the cores have told their speed.
    while connection.call("POST", "/v1/jobs", orjson.dumps({"items": probe[:1]}))["promise"]["finish_at"] is None:
        time.sleep(0.1)
    mean = sum(part * (least + most) / 2 for part, least, most in SIZES.values())
    told: list[tuple[str, str, str, dict[str, Any]]] = []
    due = time.monotonic()
    for load, (part, used) in LOADS.items():
        for _ in range(max(1, round(part * count))):
            due += 0.0 if is_quick() else rng.expovariate(used * speed / mean)
            time.sleep(max(0.0, due - time.monotonic()))
            size, items = draw(rng, questions)
            key = rng.choice(KEYS)
            body = orjson.dumps({"items": items})
            told.append((load, size, key, connection.call("POST", "/v1/jobs", body, Authorization=f"Bearer {key}")))
    found = []
    for load, size, key, job in told:
        promise, ended = job["promise"], wait_for(connection, job["id"], key)
        times = [*(promise[name] for name in ("finish_at", "earliest_at", "latest_at")), ended["finished_at"]]
        found.append(Told(load, size, *(seconds_between(job["created_at"], at) for at in times)))
    return found


def describe(jobs: Sequence[Told]) -> dict[str, float]:
    """Return what became of these promises."""
    errors = [job.expected_s / max(job.took_s, 0.001) - 1 for job in jobs]
    return {
        "jobs": len(jobs),
        "inside": round(sum(not (job.is_early or job.is_late) for job in jobs) / len(jobs), 3),
        "early": round(sum(job.is_early for job in jobs) / len(jobs), 3),
        "late": round(sum(job.is_late for job in jobs) / len(jobs), 3),
        "median_width": round(statistics.median(job.latest_s / max(job.earliest_s, 0.001) for job in jobs), 2),
        "median_error": round(statistics.median(errors), 3),
        "median_absolute_error": round(statistics.median(map(abs, errors)), 3),
    }


def groups(jobs: Sequence[Told]) -> dict[str, dict[str, float]]:
    """Return the figures of all jobs, of the first hundred, by load and by size."""
    found = {"all": describe(jobs), "first hundred": describe(jobs[:100])}
    for field in ("load", "size"):
        for name in dict.fromkeys(getattr(job, field) for job in jobs):
            found[name] = describe([job for job in jobs if getattr(job, field) == name])
    return found


def main() -> int:
    """Measure and keep the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    questions = questions_of(options.file)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="promises-") as folder:
        for name, checkout in checkouts(options.before).items():
            data = options.data if name == AFTER else Path(folder)
            with serving(name, checkout, data, log_level="warning") as running:
                jobs = measure(running, questions, QUICK_JOBS if is_quick() else options.jobs, options.seed)
            figures[name] = groups(jobs)
            print(f"{name}\n{table(figures[name])}", flush=True)
    keep("promises", figures)
    print(json.dumps({name: found["all"] for name, found in figures.items()}, indent=2))
    return 0


def table(found: dict[str, dict[str, float]]) -> str:
    """Return groups of jobs as a Markdown table."""
    columns = list(found["all"])
    rows = [[name, *(f"{group[column]:g}" for column in columns)] for name, group in found.items()]
    heads = ["", *(column.replace("_", " ") for column in columns)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


if __name__ == "__main__":
    sys.exit(main())
