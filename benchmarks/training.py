"""Steps of training: tokens a second in bf16 and in fp32, in turn, by the clock and by CPU time.

    python benchmarks/training.py [FILE.json.gz] [--threads N] [--rounds N] [--quick]

The built-in model reads batches of 8,192 tokens made of the file's questions, as ``corelane tune`` makes them. A step
is the forward and backward pass, the optimiser and the moving average; each dtype has its network.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.runs import QUICK, keep  # noqa: E402
from corelane.engine.cores import keep_memory  # noqa: E402
from corelane.plugins.tune.training.dataset import Material, Reading, Row  # noqa: E402
from corelane.plugins.tune.training.examples import read_examples  # noqa: E402
from corelane.plugins.tune.training.loop import run_step  # noqa: E402
from corelane.plugins.tune.training.network import Precision, Trainee, load_trainee, save_start  # noqa: E402
from corelane.plugins.tune.training.weights import Masters, Recipe  # noqa: E402

MODEL, MODELS = "qa-minilm", HERE.parent / "models"
FILE = HERE.parent / "examples" / "squad.json"
TOKENS, QUICK_TOKENS = 8192, 512
RECIPE = Recipe(learning_rate=1e-5, warm_up=0.1, weight_decay=0.01, clip=1.0, average=0.999)
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32")


@dataclass
class Side:
    """One dtype: its network and weights, and the times of its steps."""

    trainee: Trainee
    masters: Masters
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def step(self, material: Material, rows: list[Row], number: int) -> None:
        """Take one step, and add its times."""
        wall, cpu = time.perf_counter(), time.process_time()
        run_step(self.trainee, material, rows, None)
        self.masters.step(number, 1000)
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu


def main() -> None:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument(QUICK, action="store_true")
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        save_start(MODEL, MODELS, Path(folder) / "start", seed=0)
        trainees = [load_trainee(Path(folder) / "start", each, dropout=0.1, frozen=False) for each in PRECISIONS]
    sides = {
        name: Side(each, Masters(each.weights, RECIPE, each.start))
        for name, each in zip(PRECISIONS, trainees, strict=True)
    }
    model = trainees[0].model
    reading = Reading(384, QUICK_TOKENS if options.quick else TOKENS, negatives=0.0, seed=0)
    material = Material([read_examples(options.file)], [8.0], model.tokenizer, model.spec, reading)
    batches = material.epoch(0)
    rounds = 1 if options.quick else options.rounds
    for number in range(rounds + 1):
        if number == 1:
            # The first step makes kernels and takes memory.
            for side in sides.values():
                side.wall_s = side.cpu_s = 0.0
        for side in sides.values():
            side.step(material, batches[number % len(batches)], number)
    tokens = sum(row.length for number in range(1, rounds + 1) for row in batches[number % len(batches)])
    figures = {
        f"{name}_{kind}_tokens_per_s": tokens / seconds
        for name, side in sides.items()
        for kind, seconds in (("wall", side.wall_s), ("cpu", side.cpu_s))
    }
    for name, speed in figures.items():
        print(f"{name:24} {speed:10,.0f}")
    print(f"{options.threads} threads, {tokens:,} tokens")
    if not options.quick:
        keep("training", figures | {"threads": options.threads})


if __name__ == "__main__":
    main()
