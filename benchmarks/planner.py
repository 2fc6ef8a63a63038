"""The planner against this machine: predicted and measured p95 at three rates, for one core and for all.

    python benchmarks/planner.py [FILE.json.gz] [--limit N] [--quick]

Measures a profile on a service of all cores, predicts, then measures services of one core and of all with the bench's
open loop (Poisson), several times each. Rates are shares of what the planner says the cores can do. Nothing else should
run. Writes `results/planner.json`.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import read_arguments
from benchmarks.runs import is_quick, keep, service
from corelane.client import Client
from corelane.engine.cores import cpu_slots
from corelane.plugins.lab.load import Plan
from corelane.plugins.lab.planning.calibrate import take_profile
from corelane.plugins.lab.planning.forecast import Mix, breaking_rate, demand_of_rate, look
from corelane.plugins.lab.planning.profile import Profile
from corelane.plugins.lab.schema import Load
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import measure_point
from corelane.plugins.lab.workload import Questions

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

#: Shares of what the cores can do.
LOADS = (0.3, 0.6, 0.8)

#: What cores can do is the rate up to which 95 of 100 requests are answered within this, in seconds.
SLOW_S = 0.5

#: Seconds of the profile, of a measured run and of the load before it, and runs of each point.
PROFILE_S, MEASURED_S, WARM_UP_S, REPEATS = 60.0, 40.0, 5.0, 3
QUICKLY = (1.5, 1.0, 0.2, 1)

#: The goal for predicted over measured.
WITHIN = 0.2


def plan() -> tuple[float, float, float, int]:
    """Return seconds of the profile, of a run, before it, and runs of a point."""
    return QUICKLY if is_quick() else (PROFILE_S, MEASURED_S, WARM_UP_S, REPEATS)


@contextmanager
def serving(cores: int) -> Iterator[str]:
    """Run a service with so many cores; yield its address."""
    with service(DATA, cores=cores) as running:
        yield running.url


def calibrate(url: str, questions: Questions) -> Profile:
    """Measure one core of a service."""
    with Client(url) as client:
        return take_profile(client, Target(url), questions, seconds=plan()[0], machine=machine())


def machine() -> str:
    """Name the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def rates(profile: Profile, mix: Mix, cores: int) -> list[float]:
    """Return the rates to measure."""
    start = 5.0 * cores
    most = max(breaking_rate(profile, cores, demand_of_rate(start, mix, SLOW_S)), start)
    return [round(share * most, 2) for share in (LOADS[:1] if is_quick() else LOADS)]


def measure(url: str, questions: Questions, rate: float) -> list[float]:
    """Return the p95 of each measured run."""
    _, seconds, warm_up_s, repeats = plan()
    load = Load(kind="poisson", rate_per_s=rate, seed=1)
    offered = Plan(load=load, warmup_s=warm_up_s, duration_s=seconds, tail_s=0.5 if is_quick() else 10.0)
    point = measure_point(Target(url), questions, offered, name=f"{rate}/s", repeat=repeats)
    invalid = [reason for run in point.runs for reason in run.invalid]
    if invalid and not is_quick():
        print(f"  invalid: {'; '.join(invalid)}", file=sys.stderr)
    return [run.latency.p95 for run in point.runs if run.latency is not None]


def compare(profile: Profile, questions: Questions, mix: Mix, cores: int) -> list[dict[str, Any]]:
    """Return a row for each rate: what was expected and what was measured."""
    rows = []
    with serving(cores) as url:
        for rate in rates(profile, mix, cores):
            expected = look(profile, cores, demand_of_rate(rate, mix, SLOW_S)).p95_s
            p95s = measure(url, questions, rate)
            measured = sum(p95s) / max(1, len(p95s))
            row = {
                "cores": cores,
                "rate_per_s": rate,
                "predicted_p95_ms": round(1000 * expected, 1),
                "measured_p95_ms": round(1000 * measured, 1),
                "measured_runs_ms": [round(1000 * each, 1) for each in p95s],
                "ratio": round(expected / measured, 3) if measured else None,
            }
            print(json.dumps(row), file=sys.stderr)
            rows.append(row)
    return rows


def main() -> int:
    """Measure, predict, compare and keep the figures."""
    asked = read_arguments(__doc__)
    questions = Questions(asked, "the file", 1)
    cores = len(cpu_slots())
    with serving(cores) as url:
        profile = calibrate(url, questions)
    mix = Mix.of(((each.question, each.context) for each in asked), profile)
    counts = [cores] if is_quick() else sorted({1, cores})
    rows = [row for count in counts for row in compare(profile, questions, mix, count)]
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    figures = {
        "machine": machine(),
        "cpus": cores,
        "profile": json.loads(profile.model_dump_json(by_alias=True)),
        "rows": rows,
        "worst_ratio": max(ratios, key=lambda ratio: abs(ratio - 1), default=None),
        "all_within": all(abs(ratio - 1) <= WITHIN for ratio in ratios),
    }
    keep("planner", figures)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
