"""The built-in model in bf16 on one core: this checkout, one before it, and OpenVINO, in turn in one run.

    python benchmarks/engine_in_turn.py [--before CHECKOUT] [--limit N] [--quick]

Prints the kind of CPU and, for each way, questions a second, the padding, and the share of the speed of a packed bf16
matmul. A process for each checkout, pinned to the same CPU, runs its own engine over the windows of SQuAD questions, a
slice at a time, and OpenVINO runs in this checkout's. CPU time counts, and of each slice the best pass.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

CHILD = "--child"

#: Parts of the windows that the ways run interleaved, and passes over each.
SLICES, PASSES = 5, 4

#: Questions of a quick run, which takes one layer.
QUICK_QUESTIONS = 5

#: The way whose time is that of one matmul.
RATE = "packed matmul"

#: OpenVINO's ways, with the batches that they run.
OPENVINO = {"OpenVINO bf16, free shapes": "free", "OpenVINO bf16, ladder": "ladder"}


class Checkout:
    """A process that runs the engine of one checkout."""

    def __init__(self, name: str, root: Path, arguments: list[str]) -> None:
        from corelane.engine.cores import cpu_slots

        slot = cpu_slots()[0]
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), CHILD, str(root), str(min(slot.cpus)), *arguments],
            env={**os.environ, **slot.environment},  # noqa: TID251  # a benchmark's child has what it has
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.notes = self.hear()

    def hear(self) -> Any:
        """Return its next line."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise SystemExit(f"the process of {self.name} died")
        return json.loads(line)

    def seconds(self, way: str, part: int) -> float:
        """Have it run a slice of a way; return its CPU seconds."""
        print(json.dumps([way, part]), file=self.process.stdin, flush=True)
        return float(self.hear())


def be_a_checkout(root: Path, cpu: int, limit: int, *, others: bool) -> None:
    """Offer the ways of one checkout, and run those that are asked for."""
    import time
    from functools import partial

    sys.path.insert(0, str(root))
    os.sched_setaffinity(0, {cpu})
    import torch

    torch.set_num_threads(1)
    from benchmarks import engines
    from benchmarks.questions import examples, questions_of
    from compile.model.loading import load_model, quiet_transformers
    from compile.model.reference import wrap
    from compile.model.source import find_source

    known = examples() if limit == QUICK_QUESTIONS else questions_of(engines.DEFAULT_FILE)
    questions = known[:: max(1, len(known) // limit)][:limit]
    with quiet_transformers():
        model = load_model(find_source("qa-minilm", root / "models"))
        if limit == QUICK_QUESTIONS:
            model.network.bert.encoder.layer = model.network.bert.encoder.layer[:1]
        reference = wrap(model)
        rows = engines.read_rows(model, questions)
        batches = {"ladder": engines.ladder_batches(model, rows), "free": engines.free_batches(model, rows)}
        example = batches["ladder"][0][1]
        ways = {"Corelane bf16": (engines.ours(reference, "bf16", example), "ladder")}
        if others and (run := engines.openvino(reference, "bf16", example)) is not None:
            ways |= {name: (run, kind) for name, kind in OPENVINO.items()}
    rates, rate_notes = engines.rate_tasks([])
    used = sum(row[2].length for row in rows)
    weights = sum(each.weight.numel() for each in model.network.modules() if isinstance(each, torch.nn.Linear))
    config = model.network.config
    squares = sum(row[2].length ** 2 for row in rows)
    notes = {
        "questions": len(questions),
        "flop": 2 * used * weights + 4 * squares * config.hidden_size * config.num_hidden_layers,
        "matmul_flop": rate_notes["flop"],
        "padding": {
            name: 1 - used / sum(batch.input_ids.size for _, batch in batches[kind]) for name, (_, kind) in ways.items()
        },
    }
    with torch.inference_mode():
        for run, kind in ways.values():
            engines.run_all(run, [batch for _, batch in batches[kind]])
        print(json.dumps(notes), flush=True)
        for line in sys.stdin:
            way, part = json.loads(line)
            if way == RATE:
                work = rates.get("bf16 packed", rates["bf16 plain"])
            else:
                run, kind = ways[way]
                work = partial(engines.run_all, run, [batch for _, batch in batches[kind][part::SLICES]])
            began = time.process_time()
            work()
            print(json.dumps(time.process_time() - began), flush=True)


def measure(checkouts: list[Checkout]) -> list[tuple[str, float, float, float]]:
    """Return for each way its name, questions a second, padding, and share of the matmul's speed."""
    tasks = [(each, way, part) for part in range(SLICES) for each in checkouts for way in each.notes["padding"]]
    tasks += [(checkouts[-1], RATE, part) for part in range(SLICES)]
    best: dict[tuple[str, str, int], float] = {}
    for _ in range(PASSES):
        for each, way, part in tasks:
            taken = each.seconds(way, part)
            best[each.name, way, part] = min(taken, best.get((each.name, way, part), taken))
    notes = checkouts[-1].notes
    rate = notes["matmul_flop"] / min(best[checkouts[-1].name, RATE, part] for part in range(SLICES))
    found = []
    for each in checkouts:
        for way, padding in each.notes["padding"].items():
            seconds = sum(best[each.name, way, part] for part in range(SLICES))
            name = f"{way}, {each.name}" if way not in OPENVINO else way
            found.append((name, notes["questions"] / seconds, padding, notes["flop"] / seconds / rate))
    return found


def main() -> int:
    """Measure, and print a table."""
    if sys.argv[1:2] == [CHILD]:
        be_a_checkout(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), others=sys.argv[5] == "others")
        return 0
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.engine import name_cpu
    from corelane.artifacts.instructions import host_kind

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier state")
    parser.add_argument("--limit", type=int, default=100, help="questions")
    parser.add_argument("--quick", action="store_true", help="five questions, one layer, without OpenVINO")
    asked = parser.parse_args()
    limit = str(QUICK_QUESTIONS) if asked.quick else str(asked.limit)
    checkouts = [] if asked.before is None else [Checkout("before", asked.before.resolve(), [limit, "alone"])]
    others = "alone" if asked.quick else "others"
    checkouts.append(Checkout("after" if checkouts else "now", HERE.parent.resolve(), [limit, others]))
    try:
        found = measure(checkouts)
    finally:
        for each in checkouts:
            each.process.kill()
            each.process.communicate()
    print(f"{name_cpu()}: kind {host_kind() or 'unknown'}; one core, CPU time")
    print("| way | questions/s | padding | of a packed matmul's speed |\n|---|---|---|---|")
    for name, speed, padding, share in found:
        print(f"| {name} | {speed:.1f} | {padding:.1%} | {share:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
