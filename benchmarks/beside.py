"""What an interactive user feels beside a batch of 100,000 questions, own or another's, and what it costs the batch.

    python benchmarks/beside.py [FILE.json.gz] [--rounds N] [--before CHECKOUT] [--quick]

The built-in model on all cores. In each round questions come at random, at a fifth of the service's speed: first alone,
then beside the batch. So do jobs of 20 beside another's batch. Of each: the p95 beside the batch over that alone, the
median of the rounds, and what the cores answered meanwhile over what they answer of a batch alone. With `--before` the
service of another checkout is measured in the same turns. Writes `results/beside.json`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, Serving, add_before, checkouts, in_turn, serving
from benchmarks.questions import ROOT, questions_of
from benchmarks.runs import QUICK, is_quick, keep
from corelane.bench.batch_work import LinesJob
from corelane.bench.beside import BesidePlan, run_beside
from corelane.bench.senders import Target
from corelane.bench.workload import Questions
from corelane.client import Client

#: Questions of the batch: more than are answered meanwhile.
BATCH, QUICK_BATCH = 100_000, 60

#: Seconds of questions before the batch and beside it; of small jobs, which come more seldom; of a batch alone.
BEFORE_S, BESIDE_S, JOBS_S, ALONE_S, QUICK_S = 20.0, 30.0, 40.0, 15.0, 1.0

#: The part of the batch's speed at which questions come, and that of a quick run, a second.
PART, QUICK_RATE = 0.2, 8.0

#: Questions of a small job.
SMALL, QUICK_SMALL = 20, 2

#: Whose batch it is, where it is another's.
OTHER_KEY = "clk_bench_other"


@dataclass(frozen=True, slots=True)
class Situation:
    """Who asks beside whose batch."""

    name: str
    is_foreign: bool
    items: int = 1


SITUATIONS = (
    Situation("questions, own batch", is_foreign=False),
    Situation("questions, another's batch", is_foreign=True),
    Situation("jobs of 20, another's batch", is_foreign=True, items=SMALL),
)


def alone(running: Serving, asked: Questions, target: Target) -> float:
    """Return how many questions of a batch are answered in a second while nobody asks."""
    with Client(running.url) as client:
        work = LinesJob(client, target, asked, QUICK_BATCH if is_quick() else BATCH)
        work.submit()
        while not work.poll().done:
            time.sleep(0.05)
        began, done = time.perf_counter(), work.poll().done
        time.sleep(0.3 if is_quick() else ALONE_S)
        more, took = work.poll().done - done, time.perf_counter() - began
        work.cancel()
    return max(1, more) / took


def beside(
    running: Serving, asked: Questions, target: Target, situation: Situation, speed: float, seed: int
) -> dict[str, float]:
    """Return what questions felt alone and beside a batch, and what the cores answered then."""
    items = min(situation.items, QUICK_SMALL) if is_quick() else situation.items
    plan = BesidePlan(
        rate_per_s=QUICK_RATE if is_quick() else PART * speed,
        warmup_s=0.5 if is_quick() else 3.0,
        before_s=QUICK_S if is_quick() else BEFORE_S,
        after_s=QUICK_S,
        cut_s=QUICK_S if is_quick() else BESIDE_S,
        seed=seed,
        owner="foreign" if situation.is_foreign else "own",
    )
    if items > 1:
        long_s = QUICK_S if is_quick() else JOBS_S
        plan = replace(plan, items_per_job=items, rate_per_s=plan.rate_per_s / items, before_s=long_s, cut_s=long_s)
    with Client(running.url, OTHER_KEY if situation.is_foreign else None) as client:
        work = LinesJob(client, target, asked, QUICK_BATCH if is_quick() else BATCH)
        found = run_beside(target, asked, work, plan)
    answered = found.items_per_s + plan.rate_per_s * items
    return {
        "alone_p50_ms": 1000 * found.before.p50,
        "alone_p95_ms": 1000 * found.before.p95,
        "beside_p50_ms": 1000 * found.during.p50,
        "beside_p95_ms": 1000 * found.during.p95,
        "p95_ratio": found.ratio_p95,
        "batch_per_s": found.items_per_s,
        "all_of_bulk": answered / speed,
    }


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--data", type=Path, default=ROOT / ".corelane", help="data folder of this checkout's service")
    parser.add_argument(QUICK, action="store_true", help="seconds, one situation, and no figures kept")
    add_before(parser)
    options = parser.parse_args()
    asked = Questions(questions_of(options.file), "squad-test-public-v1.1")
    roots = checkouts(options.before)
    rounds: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in roots}
    speeds: dict[str, list[float]] = {name: [] for name in roots}
    with tempfile.TemporaryDirectory(prefix="beside-") as folder, ExitStack() as stack:
        services = {}
        for name, root in roots.items():
            data = options.data if name == AFTER else Path(folder) / name
            services[name] = stack.enter_context(serving(name, root, data, log_level="warning"))
        for number, name in in_turn(list(roots), 1 if is_quick() else options.rounds):
            target = Target(services[name].url, options={"no_answer": False})
            speeds[name].append(alone(services[name], asked, target))
            for situation in SITUATIONS[:1] if is_quick() else SITUATIONS:
                speed = statistics.median(speeds[name])
                found = beside(services[name], asked, target, situation, speed, number)
                rounds[name].setdefault(situation.name, []).append(found)
                shown = {key: round(value, 3) for key, value in found.items()}
                print(
                    json.dumps({"round": number + 1, "service": name, "situation": situation.name} | shown), flush=True
                )
    medians = {
        name: {
            situation: {key: round(statistics.median(each[key] for each in found), 3) for key in found[0]}
            for situation, found in situations.items()
        }
        for name, situations in rounds.items()
    }
    bulk = {name: round(statistics.median(found), 1) for name, found in speeds.items()}
    figures: dict[str, Any] = {"batch_alone_per_s": bulk, "medians": medians, "rounds": rounds}
    keep("beside", figures)
    print(json.dumps({"batch_alone_per_s": bulk, "medians": medians}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
