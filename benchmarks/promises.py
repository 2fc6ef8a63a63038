"""How well the service knows what is to come: promises, forecasts and `Retry-After` against what came true.

    python benchmarks/promises.py [FILE.json.gz] [--jobs 1000] [--refusals 30] [--before CHECKOUT] [--quick]

*Promises and forecasts*, with the built-in model: mixed jobs of three API keys, lone questions, jobs of 2 to 150 and
documents, come at random, at a third of the service's speed, then at eight tenths, then faster than it answers. Each is
asked as a dry run first. An interval of a promise should hold nine in ten. Of each group of jobs: the share inside,
before and after its interval, the median of the interval's width (late end over early end, from the submission), and by
how much the expected time, windows, tokens and core seconds were off.

*Retry-After*, with a null engine whose batches take half a second: callers fill the service up to its bounds, and each
submission that is refused is tried until it is taken. Of all: by how much the seconds that it was told were off.
"""

import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import orjson

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.harness import Connection, Figures, Serving, checkouts, is_quick, parser_of, percentile, serving, table
from benchmarks.questions import Question, questions_of

#: What part of the jobs comes at which part of the speed that one large job ran at.
LOADS = {"a third": (0.3, 0.33), "eight tenths": (0.4, 0.8), "too fast": (0.3, 1.15)}

#: Questions of a job, by the part of the jobs: at least, at most. A document is one question on many passages.
SIZES = {"lone": (0.5, 1, 1), "few": (0.3, 2, 20), "some": (0.15, 21, 60), "many": (0.04, 61, 150)}
DOCUMENT, PASSAGES = "document", (8, 40)

#: Questions of the job that tells the speed, and of a quick run.
PROBE, QUICK_PROBE = 200, 4

KEYS = ("one", "two", "three")

#: What a dry run says and a bill says too.
BILLED = ("windows", "tokens", "core_s")

#: The service that refuses: its bounds in tokens, half a minute's work of two cores and half of that for each caller.
BOUNDS: dict[str, Any] = {"max_outstanding_tokens": 480_000, "max_owner_tokens": 240_000}

#: Seconds of a batch of its null engine, tokens of the shortest item, and seconds between two tries.
BATCH_S, ITEM_TOKENS, TRY_S = 0.5, 64, 0.2


@dataclass(frozen=True, slots=True)
class Told:
    """A job with what it was promised, when it ended, and forecast over true of what it was billed."""

    load: str
    size: str
    expected_s: float
    earliest_s: float
    latest_s: float
    took_s: float
    billed: Figures


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one time of a job to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def draw(rng: random.Random, questions: Sequence[Question]) -> tuple[str, list[dict[str, str]]]:
    """Return the size of a job and its items."""
    size = rng.choices([*SIZES, DOCUMENT], [*(part for part, *_ in SIZES.values()), 0.01])[0]
    if size == DOCUMENT and not is_quick():
        chosen = rng.choices(questions, k=rng.randint(*PASSAGES))
        return size, [{"question": chosen[0].question, "context": "\n\n".join(each.context for each in chosen)}]
    _, least, most = SIZES.get(size, SIZES["lone"])
    count = 1 if is_quick() else rng.randint(least, most)
    return size, [question.item() for question in rng.choices(questions, k=count)]


def submit(connection: Connection, items: list[dict[str, str]], key: str = KEYS[0], **options: object) -> Any:
    """Return the answer to a submission."""
    body = orjson.dumps({"items": items} | options)
    return connection.call("POST", "/v1/jobs", body, Authorization=f"Bearer {key}")


def speed_of(connection: Connection, questions: Sequence[Question]) -> float:
    """Return how many questions of a large job are answered in a second, once promises are made."""
    items = [question.item() for question in (list(questions) * 2)[: QUICK_PROBE if is_quick() else PROBE]]
    for _ in range(2):
        began = time.perf_counter()
        connection.finish(submit(connection, items)["id"], Authorization=f"Bearer {KEYS[0]}")
        speed = len(items) / (time.perf_counter() - began)
    while submit(connection, items[:1])["promise"]["finish_at"] is None:
        time.sleep(0.1)
    return speed


def measure(running: Serving, questions: Sequence[Question], count: int, seed: int) -> list[Told]:
    """Submit jobs and return what became of what was told."""
    rng, connection = random.Random(seed), Connection(running.url)
    speed = speed_of(connection, questions)
    mean = sum(part * (least + most) / 2 for part, least, most in SIZES.values())
    submitted: list[tuple[str, str, str, Any, Any]] = []
    due = time.monotonic()
    for load, (part, used) in LOADS.items():
        for _ in range(max(1, round(part * count))):
            due += 0.0 if is_quick() else rng.expovariate(used * speed / mean)
            time.sleep(max(0.0, due - time.monotonic()))
            size, items = draw(rng, questions)
            key = rng.choice(KEYS)
            forecast = submit(connection, items, key, dry_run=True)
            submitted.append((load, size, key, forecast, submit(connection, items, key)))
    found = []
    for load, size, key, forecast, job in submitted:
        ended = connection.finish(job["id"], Authorization=f"Bearer {key}")
        usage, moments = ended["usage"], job["promise"] | {"finished_at": ended["finished_at"]}
        expected_s, earliest_s, latest_s, took_s = (
            seconds_between(job["created_at"], moments[name])
            for name in ("finish_at", "earliest_at", "latest_at", "finished_at")
        )
        billed = {name: forecast[name] / usage[name] for name in BILLED if forecast[name] and usage[name]}
        found.append(Told(load, size, expected_s, earliest_s, latest_s, took_s, billed))
    return found


def describe(jobs: Sequence[Told]) -> Figures:
    """Return what became of these promises and forecasts."""
    early = sum(job.took_s < job.earliest_s for job in jobs)
    late = sum(job.took_s > job.latest_s for job in jobs)
    ratios = {"time": [job.expected_s / max(job.took_s, 0.001) for job in jobs]}
    ratios |= {name: [job.billed[name] for job in jobs if name in job.billed] for name in BILLED}
    return {
        "jobs": len(jobs),
        "inside": 1 - (early + late) / len(jobs),
        "early": early / len(jobs),
        "late": late / len(jobs),
        "median_width": statistics.median(job.latest_s / max(job.earliest_s, 0.001) for job in jobs),
    } | {f"{name}_off_by": statistics.median(abs(each - 1) for each in of) for name, of in ratios.items() if of}


def groups(jobs: Sequence[Told]) -> dict[str, Figures]:
    """Return the figures of all jobs, by load and by size."""
    found = {"all": describe(jobs)}
    for load in LOADS:
        found[load] = describe([job for job in jobs if job.load == load])
    for size in dict.fromkeys(job.size for job in jobs):
        found[size] = describe([job for job in jobs if job.size == size])
    return found


def refusals(url: str, count: int, seed: int) -> Iterator[tuple[int, float]]:
    """Yield what each refused submission was told, and when it would have been taken, in seconds."""
    rng, callers, taken = random.Random(seed), itertools.cycle(KEYS), list[tuple[str, str]]()
    with httpx2.Client(base_url=url, timeout=60) as client:

        def post(key: str, tokens: int) -> httpx2.Response:
            item = {"question": "What is it?", "context": "The number is 7."}
            body = {"items": [item] * (tokens // ITEM_TOKENS)}
            response = client.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {key}"})
            if response.is_success:
                taken.append((key, response.json()["id"]))
            elif response.status_code != 429:
                response.raise_for_status()
            return response

        while count:
            key, tokens = next(callers), ITEM_TOKENS * rng.randint(200, 2000)
            response, began = post(key, tokens), time.monotonic()
            if response.is_success:
                continue
            told, count = int(response.headers["Retry-After"]), count - 1
            while not post(key, tokens).is_success:
                time.sleep(TRY_S)
            yield told, time.monotonic() - began
        for key, job in taken:
            client.post(f"/v1/jobs/{job}/cancel", headers={"Authorization": f"Bearer {key}"})


def main() -> int:
    """Measure and print."""
    parser = parser_of(__doc__, rounds=1, takes_questions=True)
    parser.add_argument("--jobs", type=int, default=6 if is_quick() else 1000)
    parser.add_argument("--refusals", type=int, default=2 if is_quick() else 30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    questions, slow = questions_of(options.file), BOUNDS | {"target": "null", "model": "null", "null_batch_s": BATCH_S}
    with tempfile.TemporaryDirectory(prefix="promises-") as folder:
        for name, checkout in checkouts(options.before).items():
            with serving(Path(folder) / name, name, checkout) as running:
                jobs = measure(running, questions, options.jobs, options.seed)
            print(f"\n{table(groups(jobs), name)}", flush=True)
            with serving(Path(folder) / f"{name}-refusing", name, checkout, cores=2, **slow) as running:
                found = list(refusals(running.url, options.refusals, options.seed))
            off = [abs(told / max(took, 0.5) - 1) for told, took in found]
            print(f"\n{len(found)} refusals, Retry-After off by {percentile(off, 50):.0%} (median) and", end=" ")
            print(f"{percentile(off, 90):.0%} (nine in ten); told {statistics.median(each for each, _ in found):g} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
