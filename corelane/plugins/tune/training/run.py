"""One run in its folder: what was asked for, the start, the checkpoints, the log and the model that comes out.

The same command goes on with a run that was ended. A folder that holds another run is refused, with what differs.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from compile.model.loading import load_model, quiet_transformers
from compile.model.source import find_source
from corelane.artifacts.manifest import digest_file
from corelane.engine.cores import keep_memory
from corelane.errors import SetupError
from corelane.plugins.tune.training.checkpoints import read_tensors
from corelane.plugins.tune.training.dataset import Material, Reading, bounded
from corelane.plugins.tune.training.evaluator import Judge
from corelane.plugins.tune.training.examples import Example, Split, read_examples, split_examples, squad_layout
from corelane.plugins.tune.training.loop import BEST, Course, Training
from corelane.plugins.tune.training.network import Precision, Trainee, load_trainee, save, save_start
from corelane.plugins.tune.training.progress import Say, duration
from corelane.plugins.tune.training.teachers import Lesson, consult, follow
from corelane.plugins.tune.training.weights import Recipe

#: Files and folders of a run beside those of its loop.
RUN, LOCK, START, MODEL, DEV = "run.json", "lock", "start", "model", "dev.json"

#: Dtypes that a model can be saved in.
SAVED = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run learns, and how. Two runs with the same plan on the same machine end with the same weights."""

    model: str
    files: tuple[Path, ...]
    shares: tuple[float, ...]
    dev: tuple[Path, ...] = ()
    set_aside: tuple[str, ...] = ()
    dev_share: float = 0.05
    limit: int | None = None
    epochs: int = 3
    learning_rate: float = 5e-5
    warm_up: float = 0.06
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.999
    dropout: float = 0.1
    frozen: bool = False
    batch_tokens: int = 8192
    max_length: int = 384
    negatives: float = 0.0
    judged: int = 2
    patience: int = 6
    seed: int = 0
    precision: Precision = "auto"
    threads: int = 0
    saved_as: Literal["fp32", "fp16"] = "fp32"
    lesson: Lesson | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain data, with the digests of its files: a changed file is another run."""
        files, dev = ([[path.name, digest_file(path)] for path in each] for each in (self.files, self.dev))
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return data | {"files": files, "dev": dev}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end: the folder of its model, its figures and how long it took."""

    model: Path
    figures: dict[str, Any]
    elapsed_s: float


def tune(
    plan: Plan,
    folder: Path,
    models_dir: Path,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
    checkpoint_s: float = 300.0,
) -> Finished | None:
    """Run a plan to its end, or go on with it; None if ``stopped`` ended it before, after a checkpoint."""
    split = read_split(plan)
    with alone(folder):
        plan = open_run(plan, folder, models_dir)
        return _follow(plan, split, folder, models_dir, say, stopped, checkpoint_s)


def _follow(
    plan: Plan,
    split: Split,
    folder: Path,
    models_dir: Path,
    say: Say,
    stopped: Callable[[], bool],
    checkpoint_s: float,
) -> Finished | None:
    keep_memory()
    torch.set_num_threads(plan.threads)
    trainee = load_trainee(folder / START, plan.precision, plan.dropout, plan.frozen)
    material = Material(
        split.train, plan.shares, trainee.model.tokenizer, trainee.model.spec, reading_of(plan, trainee)
    )
    judge = Judge(split.dev, trainee.model, material.reading.max_length)
    say(introduce(split, material, judge, trainee))
    write_dev(split.dev, folder / DEV)
    objective = None
    if plan.lesson is not None:
        table = consult(plan.lesson, trainee, material, plan.epochs, folder, models_dir, say, stopped)
        if table is None:
            return None
        objective = follow(table, plan.lesson)
    record = Training(trainee, material, judge, course_of(plan, checkpoint_s), folder, objective).follow(say, stopped)
    if record is None:
        return None
    save_best(folder, plan)
    best = record.best_figures
    say(f"done in {duration(record.elapsed_s)}: F1 {best['f1']:.2f} after step {best['step']:,}")
    return Finished(folder / MODEL, best, record.elapsed_s)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder of a run; raise SetupError if another process does, or if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise SetupError(f"{folder} cannot be written: {error.strerror or error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SetupError(
                f"another process trains in {folder}: wait for it, or name another folder with --run"
            ) from None
        yield


def read_split(plan: Plan) -> Split:
    """Read and check every file of a plan, and set the development part aside."""
    files = [read_examples(path)[: plan.limit] for path in plan.files]
    dev = [each for path in plan.dev for each in read_examples(path)]
    return split_examples(files, dev, plan.set_aside, plan.dev_share)


def open_run(plan: Plan, folder: Path, models_dir: Path) -> Plan:
    """Begin a run in its folder, or check that the folder's run is this one; return the plan with its threads.

    Sums differ in their last bits by the number of threads, so a run keeps the number that it began with.
    """
    path = folder / RUN
    asked = plan.as_data()
    if not path.exists():
        threads = plan.threads or torch.get_num_threads()
        try:
            save_start(plan.model, models_dir, folder / START, plan.seed)
            new = path.with_suffix(".new")
            new.write_text(json.dumps(asked | {"threads": threads}, indent=2) + "\n", encoding="utf-8")
            new.rename(path)
        except OSError as error:
            raise SetupError(f"{folder} cannot be written: {error.strerror or error}") from None
        return replace(plan, threads=threads)
    known = json.loads(path.read_bytes())
    if not plan.threads:
        asked["threads"] = known["threads"]
    if differing := [name for name, value in asked.items() if known.get(name) != value]:
        changes = ", ".join(f"{name} {known.get(name)!r} and not {asked[name]!r}" for name in differing)
        raise SetupError(f"{folder} holds another run, with {changes}: give its options, or another folder with --run")
    return replace(plan, threads=known["threads"])


def reading_of(plan: Plan, trainee: Trainee) -> Reading:
    """Return how the plan's examples become rows of this network."""
    fixed = plan.lesson is not None
    reading = Reading(plan.max_length, plan.batch_tokens, plan.negatives, plan.seed, fixed)
    return bounded(reading, trainee.model.max_positions)


def course_of(plan: Plan, checkpoint_s: float) -> Course:
    """Return how long the plan's run is."""
    recipe = Recipe(plan.learning_rate, plan.warm_up, plan.weight_decay, plan.clip, plan.average)
    return Course(plan.epochs, plan.judged, plan.patience, checkpoint_s, plan.seed, recipe)


def introduce(split: Split, material: Material, judge: Judge, trainee: Trainee) -> str:
    """Return a sentence on what is about to be learnt."""
    asked = sum(map(len, split.train))
    unanswerable = sum(not each.answers for file in split.train for each in file)
    dtype = str(next(trainee.module.parameters()).dtype).removeprefix("torch.")
    where = "a GPU" if trainee.device == "cuda" else f"{torch.get_num_threads()} threads"
    left_out = asked - len(material.items)
    return (
        f"{asked:,} questions to learn from, {unanswerable:,} of them unanswerable; {len(judge):,} to judge by; "
        f"{split.dropped:,} dropped that share an article or passage with these, {left_out:,} too long; "
        f"{trainee.model.weights / 1e6:.1f} M weights, {dtype} on {where}"
    )


def write_dev(examples: Sequence[Example], path: Path) -> None:
    """Write the development part in SQuAD's layout, to calibrate and compare versions with."""
    path.write_text(json.dumps(squad_layout(examples), ensure_ascii=False) + "\n", encoding="utf-8")


def save_best(folder: Path, plan: Plan) -> None:
    """Write the best average of a run as a model. What did not learn is as it was at the start."""
    weights, figures = read_tensors(folder / BEST)
    with quiet_transformers():
        network = load_model(find_source(str(folder / START), folder)).network
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if name in weights:
                    weight.copy_(weights[name])
        save(network, folder / START, folder / MODEL, SAVED[plan.saved_as], figures["threshold"])


def shares_of(files: Sequence[str]) -> tuple[tuple[Path, ...], tuple[float, ...]]:
    """Return the paths and shares of files given as ``FILE`` or ``FILE=SHARE``."""
    paths, shares = [], []
    for each in files:
        path, _, share = each.rpartition("=") if "=" in each and not Path(each).exists() else (each, "", "1")
        try:
            shares.append(float(share))
        except ValueError:
            raise SetupError(f"{each!r}: a share is a number, as in {path}=0.5") from None
        if not 0 < shares[-1] <= 100:
            raise SetupError(f"{each!r}: a share is above 0 and at most 100")
        paths.append(Path(path))
    return tuple(paths), tuple(shares)
