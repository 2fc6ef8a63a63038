"""What fine-tuning gains on a new domain: a model before and after `corelane tune` on a few hundred of its questions.

    python benchmarks/new_domain.py [FILE.json.gz] [--model qa-minilm] [--questions 500] [--epochs 4]
        [--learning-rate 5e-5] [--seed 1] [--quick]

The file's articles are put in a random order. The first hold the questions to learn from, the next the development
part, half as many, the rest are not seen. By default they ask who held an office or owned a house at what time. Both
networks are asked the unseen questions, in the same dtype, each at the threshold for giving no answer that suits it
best there. Writes `results/new-domain.json`.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.runs import QUICK, keep  # noqa: E402
from compile.model.reference import runner_of  # noqa: E402
from corelane.plugins.tune.training.evaluator import Judge, Verdict  # noqa: E402
from corelane.plugins.tune.training.examples import Example, read_examples, squad_layout  # noqa: E402
from corelane.plugins.tune.training.network import load_trainee, save_start  # noqa: E402
from corelane.plugins.tune.training.run import Plan, tune  # noqa: E402

MODELS = HERE.parent / "models"
FILE = HERE.parent.parent / "shared" / "data" / "tsqa-human.json.gz"
EXAMPLES = HERE.parent / "examples" / "squad.json"

#: Tokens a row at most.
MAX_LENGTH = 384

#: Unseen questions that are asked, at most: passages of a thousand tokens take minutes.
MOST_UNSEEN = 500

#: Figures of a judgement, and their headings.
SHOWN = {"f1": "F1", "exact": "EM", "answerable_f1": "F1 if any", "no_answer_accuracy": "none"}


def main() -> None:
    """Train, judge, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="qa-minilm")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(QUICK, action="store_true", help="a few questions, and no figures kept")
    options = parser.parse_args()
    file = options.file or (EXAMPLES if options.quick else FILE)
    if not file.exists():
        raise SystemExit(f"{file} is absent: give a file in SQuAD's layout")
    wanted, epochs = (8, 1) if options.quick else (options.questions, options.epochs)
    train, dev, unseen = parts(read_examples(file), wanted, options.seed)
    if not unseen:
        raise SystemExit(f"{file} has too few articles: nothing is left to ask")
    print(f"{len(train)} questions to learn from, {len(dev)} to judge by, {len(unseen)} of other articles")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        files = write(train, folder / "train.json"), write(dev, folder / "dev.json")
        plan = Plan(
            options.model,
            files[:1],
            (1.0,),
            dev=files[1:],
            epochs=epochs,
            learning_rate=options.learning_rate,
            average=0.99,
            seed=options.seed,
        )
        finished = tune(plan, folder / "run", MODELS, print)
        assert finished is not None
        save_start(options.model, MODELS, folder / "before", options.seed)
        before, after = judge(folder / "before", unseen), judge(finished.model, unseen)
    print(f"{'':8}" + "".join(f"{heading:>10}" for heading in SHOWN.values()))
    for name, verdict in (("before", before), ("after", after)):
        figures = asdict(verdict)
        print(f"{name:8}" + "".join(f"{figures[field] or 0.0:10.1f}" for field in SHOWN))
    print(f"trained in {finished.elapsed_s:.0f} s")
    if not options.quick:
        sizes = {"learnt": len(train), "judged_by": len(dev), "unseen": len(unseen), "epochs": epochs}
        keep(
            "new-domain",
            sizes | {"before": before.as_data(), "after": after.as_data(), "trained_s": finished.elapsed_s},
        )


def parts(examples: Sequence[Example], wanted: int, seed: int) -> tuple[list[Example], list[Example], list[Example]]:
    """Return questions to learn from, half as many to judge by, and some of the others; articles stay whole."""
    groups: dict[str, list[Example]] = {}
    for each in examples:
        groups.setdefault(each.group, []).append(each)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    train: list[Example] = []
    dev: list[Example] = []
    unseen: list[Example] = []
    for name in names:
        part = train if len(train) < wanted else dev if len(dev) < wanted // 2 else unseen
        part += groups[name]
    return train[:wanted], dev, unseen[:MOST_UNSEEN]


def write(examples: Sequence[Example], path: Path) -> Path:
    """Write examples to a file in SQuAD's layout, and return its path."""
    path.write_text(json.dumps(squad_layout(examples)), encoding="utf-8")
    return path


def judge(model: Path, questions: Sequence[Example]) -> Verdict:
    """Return how right a model is."""
    trainee = load_trainee(model, "auto", dropout=0.0, frozen=False)
    trainee.module.eval()
    return Judge(questions, trainee.model, MAX_LENGTH).judge(runner_of(trainee.module, trainee.device))


if __name__ == "__main__":
    main()
