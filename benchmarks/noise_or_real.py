"""Whether `corelane bench ab` tells a slower build from noise: tries on two services of one build, and on a slower one.

    python benchmarks/noise_or_real.py [FILE.json.gz] [--tries 10] [--quick]

Two services run from the same code and share all cores. Each try measures them in blocks A B B A and compares: it must
say "noise". Then B is started again with forward passes that take 10 % longer (``slower/sitecustomize.py``): each try
must say "real". The figures state how large each difference was taken to be, and the smallest that could be seen.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.questions import questions_of
from benchmarks.runs import QUICK, is_quick, keep, service
from corelane.plugins.lab.compare import Comparison, compare
from corelane.plugins.lab.load import Plan
from corelane.plugins.lab.paired import Pair, Side, measure_pair
from corelane.plugins.lab.schema import Load, Report
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import Session, make_report
from corelane.plugins.lab.workload import Questions

HERE = Path(__file__).parent
DATA = HERE.parent / ".corelane"

#: The verdict that is right for each build.
EXPECTED = {"same build": "noise", "slower build": "real"}

#: Share of the tries that must be right.
LEAST_RIGHT = 0.9

#: Tries with each build, blocks of a try, and jobs of a slot: half a second.
TRIES, BLOCKS, SLOT = 10, 12, 12

#: The same in a quick run.
QUICKLY = (1, 3, 1)

#: Callers in a closed loop, and questions in a job: both cores are at work all the time, mostly on forward passes.
CALLERS, ITEMS = 2, 4

#: Questions that are asked.
QUESTIONS = 400


def main() -> int:
    """Run the tries and print the verdicts; return 1 if they are not as they must be."""
    arguments = read_arguments()
    tries, blocks, slot = QUICKLY if is_quick() else (arguments.tries, BLOCKS, SLOT)
    questions = Questions(questions_of(arguments.file)[:QUESTIONS], str(arguments.file or "the public test file"))
    figures: dict[str, Any] = {"blocks": blocks, "slot": slot, "callers": CALLERS, "items_per_job": ITEMS}
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, service(DATA, log_level="warning") as a:
        right = []
        for build, wanted in EXPECTED.items():
            print(f"{build}, {wanted} is right:")
            with other_service(Path(folder) / build.replace(" ", "-"), is_slower=wanted == "real") as url:
                found = [one_try(a.url, url, questions, blocks, slot) for _ in range(tries)]
            figures[build] = [summary(each) for each in found]
            right.append(sum(each.verdict == wanted for each in found))
            print(f"  {right[-1]} of {tries} are right")
    figures["took_s"] = time.monotonic() - began_s
    keep("noise_or_real", figures)
    return 0 if is_quick() or min(right) >= LEAST_RIGHT * tries else 1


@contextmanager
def other_service(data: Path, *, is_slower: bool) -> Iterator[str]:
    """Yield the address of a service of the same code, or of the slower build."""
    changes = {"PYTHONPATH": str(HERE / "slower")} if is_slower else {}
    with (
        mock.patch.dict(os.environ, changes),  # noqa: TID251  # the service's, not ours
        service(data, artifacts_dir=(DATA / "artifacts").resolve(), log_level="warning") as found,
    ):
        yield found.url


def one_try(url_a: str, url_b: str, questions: Questions, blocks: int, slot: int) -> Comparison:
    """Measure both in turn, compare them, and print what was found."""
    plan = Plan(
        Load(kind="closed", concurrency=CALLERS), way="job", items_per_job=ITEMS, warmup_s=0.5, tail_s=0, processes=1
    )
    targets: dict[Side, Target] = {"A": Target(url_a), "B": Target(url_b)}
    pair = measure_pair(targets, questions, plan, name="jobs", blocks=blocks, slot=slot)
    a, b = (report_of(pair, side, targets[side], questions, plan) for side in ("A", "B"))
    found = compare(a, b, anyway=True)
    changes = ", ".join(
        f"{each.figure} {each.change:+.1%} ({each.low:+.1%} to {each.high:+.1%})" for each in found.differences
    )
    print(f"  {found.verdict}: {changes}", flush=True)
    return found


def report_of(pair: Pair, side: Any, target: Target, questions: Questions, plan: Plan) -> Report:
    """Return the report of one side."""
    session = Session(target, questions, plan)
    report = make_report(session, [pair.points[side]], name="ab", command=sys.argv, configuration={})
    report.pairing = pair.pairing(side)
    return report


def summary(found: Comparison) -> dict[str, Any]:
    """Return what is kept of a try."""
    changes = {each.figure: [each.change, each.low, each.high] for each in found.differences}
    return {"verdict": found.verdict, "changes": changes}


def read_arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument(QUICK, action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
