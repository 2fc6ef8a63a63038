"""What an interactive user feels beside a document, and beside a batch, own or another's; and what it costs the batch.

    python benchmarks/beside.py [FILE.json.gz] [--rounds 3 | --short] [--jobs] [--batch 6000]
        [--before CHECKOUT] [--quick]

The built-in model on all cores. In each round questions come at random in each situation: first alone, then the same
questions at the same times beside the work. Beside documents of 50,000 words they come at a third of the service's
speed, beside a batch at a fifth. The speed is that of a batch alone, measured in each round. Of each situation:
percentiles of all rounds together, the work's part over the part before it, the same ratio of each round from least to
most, and what the cores answered beside over the speed of a batch alone. With ``--jobs`` jobs of 20 come beside
another's batch too. With ``--before`` the service of another checkout is measured in the same turns. Four minutes a
service, 80 s in a short run. Writes `results/beside.json`.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.checkouts import AFTER, Serving, checkouts, in_turn, serving
from benchmarks.options import parser_of, rounds_of
from benchmarks.questions import questions_of
from benchmarks.runs import is_quick, keep
from corelane.client import Client
from corelane.plugins.lab.batch_work import BatchWork, Documents, LinesJob, Standing
from corelane.plugins.lab.beside import BesidePlan, latencies, why_invalid
from corelane.plugins.lab.generator import Background
from corelane.plugins.lab.schema import Request
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.stats import percentile
from corelane.plugins.lab.workload import Questions

#: Questions of the batch: more than are answered meanwhile, and soon handed in.
BATCH, QUICK_BATCH = 6_000, 60

#: Words of a document.
WORDS, QUICK_WORDS = 50_000, 500

#: Seconds until questions count, and after work until the cores are done with it; of a batch alone; of a quick run.
WARM_S, SETTLE_S, ALONE_S, QUICK_S = 2.0, 1.5, 6.0, 0.7

#: Questions, or jobs, a second of a quick run.
QUICK_RATE = 10.0

#: Questions of a small job.
SMALL, QUICK_SMALL = 20, 2

#: Work is asked how far it is this often, in seconds.
POLL_S = 0.25

#: Whose work it is, where it is another's.
OTHER_KEY = "clk_bench_other"

PERCENTILES = (50, 95, 99)

#: A span of time, in seconds since questions began to come.
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Asking:
    """What all services are asked: the questions, and how many of them make a batch."""

    asked: Questions
    batch: int

    def batch_work(self, client: Client, target: Target) -> BatchWork:
        """Return a job of many questions."""
        return LinesJob(client, target, self.asked, items=QUICK_BATCH if is_quick() else self.batch)

    def documents(self, client: Client, target: Target) -> BatchWork:
        """Return documents, the next when one is read."""
        return Documents(client, target, self.asked, words=QUICK_WORDS if is_quick() else WORDS, count=1000)


@dataclass(frozen=True, slots=True)
class Situation:
    """What questions are beside, whose it is, their part of the speed, and how long they come, in seconds."""

    name: str
    is_batch: bool
    is_foreign: bool
    part: float
    seconds: float = 10.0
    items: int = 1


SITUATIONS = (
    Situation("questions, own documents", is_batch=False, is_foreign=False, part=1 / 3),
    Situation("questions, own batch", is_batch=True, is_foreign=False, part=0.2),
    Situation("questions, another's batch", is_batch=True, is_foreign=True, part=0.2),
)

JOBS = Situation("jobs of 20, another's batch", is_batch=True, is_foreign=True, part=0.2, seconds=15.0, items=SMALL)


@dataclass
class Felt:
    """What questions felt in a situation: latencies alone and beside by round, in seconds; the part of bulk's speed."""

    alone: list[list[float]] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    of_bulk: list[float] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """Return percentiles of all rounds, their ratios, and how these are spread over the rounds."""
        found: dict[str, Any] = {}
        alone, beside = (sorted(second for each in part for second in each) for part in (self.alone, self.beside))
        for percent in PERCENTILES:
            before, during = percentile(alone, percent), percentile(beside, percent)
            by_round = [
                percentile(sorted(late), percent) / percentile(sorted(early), percent)
                for early, late in zip(self.alone, self.beside, strict=True)
            ]
            found |= {
                f"alone_p{percent}_ms": round(1000 * before, 1),
                f"beside_p{percent}_ms": round(1000 * during, 1),
                f"p{percent}_ratio": round(during / before, 3),
                f"p{percent}_ratios": [round(ratio, 3) for ratio in sorted(by_round)],
            }
        found |= {"questions": [len(alone), len(beside)], "invalid": self.invalid}
        if self.of_bulk:
            found["of_bulk"] = round(statistics.median(self.of_bulk), 3)
        return found


def alone(running: Serving, asking: Asking, target: Target) -> float:
    """Return how many questions of a batch are answered in a second while nobody asks."""
    with Client(running.url) as client:
        work = asking.batch_work(client, target)
        work.submit()
        while not work.poll().done:
            time.sleep(0.05)
        began, done = time.perf_counter(), work.poll().done
        time.sleep(0.3 if is_quick() else ALONE_S)
        more, took = work.poll().done - done, time.perf_counter() - began
        work.cancel()
    return max(1, more) / took


def beside(
    running: Serving, asking: Asking, target: Target, situation: Situation, speed: float, seed: int, felt: Felt
) -> None:
    """Ask alone and beside the work, and note what was felt."""
    items = min(situation.items, QUICK_SMALL) if is_quick() else situation.items
    rate = QUICK_RATE if is_quick() else situation.part * speed / items
    plan = BesidePlan(rate_per_s=rate, seed=seed, items_per_job=items).questions
    seconds = QUICK_S if is_quick() else situation.seconds
    with Client(running.url, OTHER_KEY if situation.is_foreign else None) as client:
        work = (asking.batch_work if situation.is_batch else asking.documents)(client, target)
        with Background(target, asking.asked, plan) as background:
            alone_s, _ = ask_for(background, seconds)
            background.stop()
        # A large batch takes seconds to hand in.
        work.submit()
        with Background(target, asking.asked, plan) as besides:
            beside_s, standings = ask_for(besides, seconds, work)
            work.cancel()
            time.sleep(0.1 if is_quick() else SETTLE_S)
            besides.stop()
    note(felt, (background.requests, alone_s), (besides.requests, beside_s))
    began, ended = standings[0], standings[-1]
    if situation.is_batch:
        felt.of_bulk.append(((ended.done - began.done) / (beside_s[1] - beside_s[0]) + rate * items) / speed)
    if ended.is_final:
        felt.invalid.append("the work was done before the time was over")


def ask_for(background: Background, seconds: float, work: BatchWork | None = None) -> tuple[Span, list[Standing]]:
    """Let questions come for some time after the first moments; return that time, and how far the work was in it."""
    background.start()
    time.sleep(max(0.0, (0.2 if is_quick() else WARM_S) - background.at_s))
    began_s, standings = background.at_s, [] if work is None else [work.poll()]
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(POLL_S, left))
        standings += [] if work is None else [work.poll()]
    return (began_s, background.at_s), standings


def note(felt: Felt, *parts: tuple[Sequence[Request], Span]) -> None:
    """Note the latencies of questions that were due in two spans of time: alone, and beside the work."""
    alone, beside = ([each for each in requests if begin <= each.intended_s < end] for requests, (begin, end) in parts)
    if not (latencies(alone) and latencies(beside)):
        raise SystemExit("no question was answered in time: the service is too slow for this benchmark")
    felt.alone.append(latencies(alone))
    felt.beside.append(latencies(beside))
    late = sorted(each.sent_s - each.intended_s for each in [*alone, *beside] if each.sent_s is not None)
    felt.invalid += why_invalid(percentile(late, 95), [*alone, *beside])


def main() -> int:
    """Measure and keep the figures."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--jobs", action="store_true", help="jobs of 20 beside another's batch too")
    parser.add_argument("--batch", type=int, default=BATCH, help="questions of the batch")
    options = parser.parse_args()
    asking = Asking(Questions(questions_of(options.file), "squad-test-public-v1.1"), options.batch)
    roots = checkouts(options.before)
    situations = SITUATIONS[1:2] if is_quick() else (*SITUATIONS, JOBS) if options.jobs else SITUATIONS
    felt = {name: {situation.name: Felt() for situation in situations} for name in roots}
    speeds: dict[str, list[float]] = {name: [] for name in roots}
    with tempfile.TemporaryDirectory(prefix="beside-") as folder, ExitStack() as stack:
        services = {}
        for name, root in roots.items():
            data = options.data if name == AFTER else Path(folder) / name
            services[name] = stack.enter_context(serving(name, root, data, log_level="warning"))
        for number, name in in_turn(list(roots), rounds_of(options)):
            target = Target(services[name].url, options={"no_answer": False})
            speeds[name].append(alone(services[name], asking, target))
            for situation in situations:
                found = felt[name][situation.name]
                beside(services[name], asking, target, situation, statistics.median(speeds[name]), number, found)
                last = Felt(found.alone[-1:], found.beside[-1:], found.of_bulk[-1:]).describe()
                ratios = {key: value for key, value in last.items() if key.endswith("_ratio") or key == "of_bulk"}
                print(
                    json.dumps({"round": number + 1, "service": name, "situation": situation.name} | ratios), flush=True
                )
    described = {name: {key: each.describe() for key, each in its.items()} for name, its in felt.items()}
    bulk = {name: [round(speed, 1) for speed in found] for name, found in speeds.items()}
    figures: dict[str, Any] = {"batch_alone_per_s": bulk, "felt": described}
    keep("beside", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
