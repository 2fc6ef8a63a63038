"""Reports as a run would make them: requests through a queue with some cores, by a seeded simulation."""

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from corelane.plugins.lab.asserts import check, parse_assertion
from corelane.plugins.lab.figures import Objective, point_figures, summarise
from corelane.plugins.lab.find_rate import FoundRate
from corelane.plugins.lab.schema import (
    Beside,
    Load,
    LoadPoint,
    Machine,
    Pairing,
    Report,
    ResultCheck,
    Run,
    ServiceInfo,
    ServiceSplit,
    Spread,
    WorkloadInfo,
)
from tests.plugins.lab.queues import Queue

#: A text that a page must escape, a terminal must not obey, and a spreadsheet must not run.
HOSTILE = "<script>alert(1)</script>[red]\x1b[2J=cmd"

CORES, SERVICE_S = 2, 0.030


def seconds(mean: float) -> Spread:
    return Spread(count=500, mean=mean, p50=mean * 0.9, p90=mean * 1.6, p95=mean * 2, p99=mean * 3, max=mean * 5)


def split_of(rate: float) -> ServiceSplit:
    busy = min(0.97, rate * SERVICE_S / CORES)
    wait = 0.004 + 0.02 * busy / (1 - busy)
    return ServiceSplit(
        wait=seconds(wait),
        tokenize=seconds(0.0008),
        compute=seconds(0.027),
        merge=seconds(0.0003),
        commit=seconds(0.0021),
        deliver=seconds(0.0012),
        job=seconds(wait + 0.0314),
        batch_rows=seconds(1.4),
        padding_share=0.18,
        tokens_per_s=150 * rate,
        core_busy={"host/0": busy, "host/1": busy * 0.98},
        core_items={"host/0": round(rate * 10), "host/1": round(rate * 10)},
    )


def point_at(
    rate: float, *, repeats: int = 3, seed: int = 0, late_s: float = 0.0, slow: float = 1.0, limit_s: float | None = 0.2
) -> LoadPoint:
    """Return a point of several runs; every hundredth request fails."""
    load = Load(kind="poisson", rate_per_s=rate, duration_s=20, seed=seed)
    results = ResultCheck(checked=400, differ_from_idle=0, exact=71.4, f1=79.93)
    queue = Queue(CORES, slow * SERVICE_S, late_s)
    good = None if limit_s is None else Objective("latency", limit_s)
    runs = []
    for number in range(repeats):
        measured = queue.run(load.model_copy(update={"seed": seed + 31 * number}), results)
        for each in measured.requests:
            each.first_s = each.ended_s
        for each in measured.requests[::100]:
            each.outcome, each.error, each.detail = "error", "run_failed", HOSTILE
        runs.append(summarise(measured, good, split_of(rate)))
    return LoadPoint(name=load.name, load=load, runs=runs, figures=point_figures(runs))


def beside_of() -> Beside:
    progress = [(float(at), min(3000, at * 62)) for at in range(50)]
    return Beside(
        items=3000,
        makespan_s=48.6,
        first_result_s=0.9,
        items_per_s=61.7,
        progress=progress,
        before=seconds(0.036),
        during=seconds(0.052),
        after=seconds(0.037),
        results=ResultCheck(checked=3000, exact=70.9, f1=79.1),
    )


def report_of(points: Sequence[LoadPoint], **fields: Any) -> Report:
    invalid = [reason for point in points for run in point.runs for reason in run.invalid]
    given: dict[str, Any] = {
        "name": "sweep",
        "created_at": "2026-11-22T12:00:00.000Z",
        "command": ["corelane", "bench", "--sweep", HOSTILE],
        "configuration": {"rate": 10, "note": HOSTILE},
        "way": "item",
        "hearing": "wait",
        "machine": Machine(
            cpu="Intel(R) Xeon(R) Platinum 8488C",
            cores=2,
            memory_bytes=8 << 30,
            amx=True,
            kernel="6.1",
            python="3.11.7",
        ),
        "service": ServiceInfo(
            url="http://127.0.0.1:8000",
            version="0.15.0",
            model="qa-minilm@3f2a",
            digest="sha256:3f2a",
            dtype="bf16",
            cores=["host/0", "host/1"],
        ),
        "workload": WorkloadInfo(
            source="squad-test-public-v1.1.json.gz",
            hash="sha256:9a1f0c",
            items=400,
            words=52_000,
            tokens=71_000,
            text_words=seconds(120),
            seed=0,
            has_known=True,
        ),
        "points": list(points),
        "valid": not invalid,
        "invalid": invalid,
    }
    return Report(**(given | fields))


def sweep_report(**fields: Any) -> Report:
    """Return a sweep over its knee with everything that a page shows."""
    points = [point_at(rate, repeats=2) for rate in (5, 20, 35, 45, 52, 60)]
    given: dict[str, Any] = {
        "knee": {"rate_per_s": 52.0, "p95_s": 0.14, "items_per_s": 51.8},
        "found_rate": FoundRate(Objective("p95", 0.2), 54.2, 54.1, 0.14).describe(),
        "beside": beside_of(),
    }
    report = report_of(points, **(given | fields))
    report.assertions = [check(report, parse_assertion(text)) for text in ["p95<1s", "lost==0"]]
    return report


@cache
def plain_run() -> Run:
    return point_at(20, repeats=1, limit_s=None).runs[0]


def paired_reports(rng: random.Random, blocks: int, effect: float) -> tuple[Report, Report]:
    """Return the two sides of a session A B B A, in which B is slower by this share, on a machine that drifts.

    The machine's speed is an AR(1) process with a deviation of 10 % that forgets in 90 s; a run takes 2 s, and one in
    twenty is disturbed.
    """
    keep = math.exp(-2 / 90)
    drift = rng.gauss(0, 0.1)
    runs: dict[str, list[Any]] = {"A": [], "B": []}
    template = plain_run()
    for block in range(blocks):
        for side in "ABBA":
            drift = keep * drift + math.sqrt(1 - keep**2) * rng.gauss(0, 0.1)
            noise = rng.gauss(0, 0.02) + (rng.expovariate(1 / 0.15) if rng.random() < 0.05 else 0)
            level = drift + (math.log1p(effect) if side == "B" else 0)
            times = seconds(0.04 * math.exp(level + noise)).model_copy(
                update={"p50": 0.036 * math.exp(level + 0.5 * noise), "p95": 0.08 * math.exp(level + 2 * noise)}
            )
            rate = 50 * math.exp(-level - noise)
            fields = {
                "latency": times,
                "items_per_s": rate,
                "block": block,
                "results": None,
                "failed": 0,
                "invalid": [],
            }
            runs[side].append(template.model_copy(update=fields))
    load = Load(kind="closed", concurrency=2)
    return tuple(  # type: ignore[return-value]
        report_of(
            [LoadPoint(name="closed 2", load=load, runs=runs[side], figures=point_figures(runs[side]))],
            pairing=Pairing(session="one", side=side, order="ABBA" * blocks),
        )
        for side in "AB"
    )
