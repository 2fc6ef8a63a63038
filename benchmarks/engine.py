"""The engine's forward passes on one core: this checkout's, another's, and OpenVINO's, in turn in one run.

    python benchmarks/engine.py [FILE.json.gz] [--before CHECKOUT] [--limit 100] [--quick]

The built-in model in bf16. A process for each checkout, pinned to the same CPU, runs its own engine over the windows of
SQuAD questions, a slice at a time; OpenVINO, where it is installed, runs in this checkout's. CPU time counts, and of
each slice the best pass. Printed are questions a second, the share of padding, and the share of the speed of a packed
bf16 matmul.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: The role of a process that runs a checkout's engine: `--child CHECKOUT OTHERS`, then this run's own arguments.
CHILD = "--child"

sys.path.insert(0, str(HERE.parent))

import benchmarks  # noqa: E402, F401  # this checkout's, whichever comes first below

#: A checkout's own packages come first where its interpreter runs this file.
if CHILD in sys.argv:
    sys.path.insert(0, sys.argv[2])

from benchmarks.harness import AFTER, about_machine, checkouts, environment, hear, is_quick, parser_of, python_of  # noqa: E402
from benchmarks.questions import questions_of  # noqa: E402

#: Parts of the windows that the ways run interleaved, and passes over each.
SLICES, PASSES = 5, 4

#: The way whose time is that of one matmul.
RATE = "packed matmul"

OURS = "Corelane bf16"


class Checkout:
    """A process that runs the engine of one checkout."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        others = str(name == AFTER and not is_quick())
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [python_of(root), str(Path(__file__).resolve()), CHILD, str(root), others, *sys.argv[1:]],
            env=environment() | one_thread,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.notes = hear(self.process)

    def seconds(self, way: str, part: int) -> float:
        """Have it run a slice of a way; return its CPU seconds."""
        print(json.dumps([way, part]), file=self.process.stdin, flush=True)
        return float(hear(self.process))

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def measure(engines: list[Checkout]) -> list[tuple[str, float, float, float]]:
    """Return for each way its name, questions a second, padding, and share of the matmul's speed."""
    last = engines[-1]
    tasks = [(each, way, part) for part in range(SLICES) for each in engines for way in each.notes["padding"]]
    tasks += [(last, RATE, part) for part in range(SLICES)]
    best: dict[tuple[str, str, int], float] = {}
    for _ in range(1 if is_quick() else PASSES):
        for each, way, part in tasks:
            taken = each.seconds(way, part)
            best[each.name, way, part] = min(taken, best.get((each.name, way, part), taken))
    rate = last.notes["matmul_flop"] / min(best[last.name, RATE, part] for part in range(SLICES))
    found = []
    for each in engines:
        for way, padding in each.notes["padding"].items():
            seconds = sum(best[each.name, way, part] for part in range(SLICES))
            name = f"{way}, {each.name}" if way == OURS else way
            found.append((name, last.notes["questions"] / seconds, padding, last.notes["flop"] / seconds / rate))
    return found


def be_a_checkout(file: Path | None, limit: int, *, others: bool) -> None:
    """Offer the ways of one checkout, and run those that are asked for."""
    import os
    import time

    import torch

    from benchmarks.engine_ways import make_ways, run_all

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    known = questions_of(file)
    ways, matmul, notes = make_ways(known[:: max(1, len(known) // limit)][:limit], Path(sys.argv[2]), others=others)
    with torch.inference_mode():
        for run, batches in ways.values():
            run_all(run, batches)
        print(json.dumps(notes), flush=True)
        for line in sys.stdin:
            way, part = json.loads(line)
            began = time.process_time()
            if way == RATE:
                matmul()
            else:
                run, batches = ways[way]
                run_all(run, batches[part::SLICES])
            print(json.dumps(time.process_time() - began), flush=True)


def main() -> int:
    """Measure, and print a table."""
    child = sys.argv[1:2] == [CHILD]
    parser = parser_of(__doc__, rounds=1, takes_questions=True)
    parser.add_argument("--limit", type=int, default=5 if is_quick() else 100, help="questions")
    options = parser.parse_args(sys.argv[4:] if child else sys.argv[1:])
    if child:
        be_a_checkout(options.file, options.limit, others=sys.argv[3] == "True")
        return 0
    engines: list[Checkout] = []
    try:
        for name, root in checkouts(options.before).items():
            engines.append(Checkout(name, root))
        found = measure(engines)
    finally:
        for each in engines:
            each.end()
    print(f"{about_machine()}; one core, CPU time")
    print("| way | questions/s | padding | of a packed matmul's speed |\n|---|---|---|---|")
    for name, speed, padding, share in found:
        print(f"| {name} | {speed:.1f} | {padding:.1%} | {share:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
