"""One lane per version that its cores share (the product) against lanes of cores with stealing, and round robin (M8).

    nice -n 5 python benchmarks/lanes_compared.py [--quick]

Eight simulated cores; all hold model A, half of them model B. Of the items 85 % come for A in jobs of 300 to 1,500,
the rest are lone questions for both, of other owners; a few documents keep a core for a second. The true cost of an
item is 0.5 to 2 times its estimate. Arrivals do not wait for answers: once at 75 % of what the cores can do, once at
150 %. Each seed is run with each variant in turn, in a changing order. Times of jobs are those of the store, from
submitted to final; throughput is items over the time from the first submit to the last job final.

``documents_anywhere`` is the product without its rule that a core which reads a document takes no second one. The
others change the product's Lua (see ``variants``): ``per_core`` routes each ref to the core with the fewest outstanding
tokens when it comes, and idle cores steal; ``round_robin`` fills the cores' lanes in turn, and nothing is stolen.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.simulated_cores import (  # noqa: E402
    LADDER,
    Cost,
    Plan,
    own_redis,
    quantile,
    running_squad,
    simulated_item,
    submit,
    wait_until_final,
    windows_of,
    with_store,
)
from corelane.engine.buckets import smallest_fit  # noqa: E402
from corelane.jobs import Item  # noqa: E402
from corelane.store.jobs import JobStore  # noqa: E402

CORES = 8
MODEL_A, MODEL_B = "a@1", "b@1"

#: A batch of the default ladder then takes about 50 ms: long against what this machine's neighbours take away.
COST = Cost(batch_s=0.003, token_s=1 / 20_000)

#: What each changes of a plan.
VARIANTS: dict[str, dict[str, Any]] = {
    "product": {},
    "documents_anywhere": {"spreads_documents": False},
    "per_core": {"variant": "per_core"},
    "round_robin": {"variant": "per_core+round_robin"},
}

#: Shares of the load: of all work, documents; of the items that are none, those that come in bursts.
DOCUMENT_WORK, BURST_ITEMS = 0.08, 0.85

#: Neighbouring items of a job are misjudged alike, so many of them.
ALIKE = 32


@dataclass(frozen=True, slots=True)
class Phase:
    """How much is asked of the cores, and for how long; 1.0 is all they can do."""

    name: str
    load: float
    seconds: float


PHASES = (Phase("steady", 0.75, 15.0), Phase("overload", 1.5, 8.0))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that will be submitted at a time, in seconds from the start."""

    at_s: float
    kind: str
    version: str
    owner: str
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one phase with one variant: seconds in all, and for each kind of job its seconds."""

    variant: str
    phase: str
    seed: int
    items: int
    makespan_s: float
    took_s: dict[str, list[float]]
    busy_share: float
    batches: int
    late_s: float

    @property
    def items_per_s(self) -> float:
        """Throughput."""
        return self.items / self.makespan_s


def work_s(true: int) -> float:
    """Time of a core that an item needs, as a part of full batches."""
    buckets = [smallest_fit(window.length, LADDER) for window in windows_of(true)]
    return sum(COST.of(bucket.rows, bucket.length) / bucket.rows for bucket in buckets)


def misjudged(rng: random.Random, estimated: int, factor: float | None = None) -> tuple[Item, float]:
    """An item and its work; its true tokens are off by ``factor``, or by one drawn from 0.5 to 2."""
    true = max(20, round(estimated * (factor or 2 ** rng.uniform(-1, 1))))
    return simulated_item(estimated, true), work_s(true)


def make_load(seed: int, phase: Phase) -> list[Arrival]:
    """The arrivals of a phase, the same for every variant, in the order of their times."""
    rng = random.Random(f"{seed}/{phase.name}")
    left = CORES * phase.seconds * phase.load
    arrivals: list[Arrival] = []

    def arrive(kind: str, version: str, owner: str, items: Sequence[Item]) -> None:
        arrivals.append(Arrival(rng.uniform(0, phase.seconds), kind, version, owner, items))

    least = left * (1 - DOCUMENT_WORK)
    while left > least:
        item, work = misjudged(rng, rng.randint(4_000, 16_000))
        left -= work
        arrive("document", rng.choice((MODEL_A, MODEL_B)), f"asker-{rng.randrange(6)}", [item])
    while left > 0:
        count = rng.randint(300, 1_500)
        factors = [2 ** rng.uniform(-1, 1) for _ in range(0, count, ALIKE)]
        burst = [misjudged(rng, rng.randint(64, 180), factors[n // ALIKE]) for n in range(count)]
        arrive("burst", MODEL_A, f"bulk-{rng.randrange(2)}", [item for item, _ in burst])
        lone = [misjudged(rng, rng.randint(64, 180)) for _ in range(round(len(burst) * (1 / BURST_ITEMS - 1)))]
        for item, _ in lone:
            arrive("lone", rng.choice((MODEL_A, MODEL_B)), f"asker-{rng.randrange(6)}", [item])
        left -= sum(work for _, work in burst + lone)
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


async def send(store: JobStore, load: Sequence[Arrival]) -> tuple[dict[str, str], float]:
    """Submit every job at its time, whatever became of the others; kinds by job, and how late the latest was sent."""
    began, late = time.monotonic(), 0.0
    tasks = []
    for arrival in load:
        await asyncio.sleep(max(0.0, arrival.at_s - (time.monotonic() - began)))
        late = max(late, time.monotonic() - began - arrival.at_s)
        tasks.append(asyncio.create_task(submit(store, arrival.version, arrival.items, arrival.owner)))
    jobs = await asyncio.gather(*tasks)
    return {job: arrival.kind for job, arrival in zip(jobs, load, strict=True)}, late


def run(url: str, variant: str, phase: Phase, seed: int) -> Run:
    """One phase with one variant, on an empty store."""
    load = make_load(seed, phase)
    held = {n: (MODEL_A, MODEL_B) if n < CORES // 2 else (MODEL_A,) for n in range(CORES)}
    plan = Plan(url, held, COST, **VARIANTS[variant])
    with redis.Redis.from_url(url, decode_responses=True) as raw:
        raw.flushall()
        with running_squad(plan) as squad:
            squad.go()
            kinds, late_s = with_store(plan.settings, lambda store: send(store, load))
            wait_until_final(raw, 60)
            readings = squad.readings().values()
        times = {job: raw.hmget(f"cl:job:{{{job}}}", "created_ms", "finished_ms", "succeeded") for job in kinds}
    succeeded = sum(int(count) for _, _, count in times.values())
    items = sum(len(arrival.items) for arrival in load)
    if succeeded != items:
        raise RuntimeError(f"{succeeded} of {items} items were answered")
    took_s: dict[str, list[float]] = {}
    for job, (created, finished, _) in times.items():
        took_s.setdefault(kinds[job], []).append((int(finished) - int(created)) / 1000)
    makespan_s = (max(int(t[1]) for t in times.values()) - min(int(t[0]) for t in times.values())) / 1000
    busy_share = sum(reading.busy_s for reading in readings) / makespan_s / CORES
    batches = sum(reading.batches for reading in readings)
    return Run(variant, phase.name, seed, items, makespan_s, took_s, busy_share, batches, late_s)


def summary(runs: Sequence[Run], phase: str) -> list[dict[str, object]]:
    """One row per variant: all seeds together, and throughput against the product's, seed by seed."""
    product = {run.seed: run for run in runs if run.variant == "product" and run.phase == phase}
    rows = []
    for variant in VARIANTS:
        own = [run for run in runs if run.variant == variant and run.phase == phase]
        row: dict[str, object] = {
            "variant": variant,
            "items_per_s": round(sum(run.items for run in own) / sum(run.makespan_s for run in own), 1),
            "throughput_ratios": [round(run.items_per_s / product[run.seed].items_per_s, 3) for run in own],
            "busy_share": round(statistics.mean(run.busy_share for run in own), 3),
            "batches": sum(run.batches for run in own),
            "late_ms": round(1000 * max(run.late_s for run in own)),
        }
        for kind in ("lone", "burst", "document"):
            took = [took for run in own for took in run.took_s.get(kind, [])]
            row[f"{kind}_p50_s"], row[f"{kind}_p99_s"] = round(quantile(took, 0.5), 3), round(quantile(took, 0.99), 3)
        for kind in ("lone", "document"):
            row[f"{kind}_p99_ratios"] = [
                round(quantile(run.took_s[kind], 0.99) / quantile(product[run.seed].took_s[kind], 0.99), 2)
                for run in own
            ]
        rows.append(row)
    return rows


def show(rows: Sequence[dict[str, object]], phase: str) -> None:
    """A phase as a table."""
    columns = [name for name in rows[0] if not name.endswith("ratios") and name != "late_ms"]
    print(f"\n{phase}\n" + " ".join(f"{name:>18}" for name in columns))
    for row in rows:
        print(" ".join(f"{row[name]!s:>18}" for name in columns))
    for row in rows[1:]:
        print(f"  {row['variant']} against product, seed by seed: throughput {row['throughput_ratios']}", end=", ")
        print(f"lone p99 {row['lone_p99_ratios']}, document p99 {row['document_p99_ratios']}")


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, shorter phases")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, each with every variant")
    arguments = parser.parse_args()
    scale, seeds = (0.4, 1) if arguments.quick else (1.0, arguments.seeds)
    phases = [Phase(phase.name, phase.load, phase.seconds * scale) for phase in PHASES]
    runs: list[Run] = []
    with own_redis() as url:
        for seed in range(1, seeds + 1):
            for phase in phases:
                turn = seed % len(VARIANTS)
                for variant in [*VARIANTS][turn:] + [*VARIANTS][:turn]:
                    runs.append(run(url, variant, phase, seed))
                    lone = quantile(runs[-1].took_s["lone"], 0.99)
                    print(
                        f"{seed} {phase.name} {variant}: {runs[-1].items_per_s:.0f} items/s, lone p99 {lone:.3f} s",
                        flush=True,
                    )
    figures = {phase.name: {**asdict(phase), "variants": summary(runs, phase.name)} for phase in phases}
    for phase in phases:
        show(summary(runs, phase.name), phase.name)
    if not arguments.quick:
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / "lanes.json").write_text(
            json.dumps({"seeds": seeds, "cores": CORES, **figures}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
