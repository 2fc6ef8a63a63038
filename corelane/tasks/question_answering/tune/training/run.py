"""One run in its folder: the plan, the start, the checkpoints, the log and the finished model.

The same command resumes a run that was ended. A folder with another run is refused, with the differences.
"""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from compile.model.loading import load_model, quiet_transformers
from compile.model.source import find_source
from corelane.domain.durations import duration
from corelane.engine.cores import keep_memory
from corelane.errors import SetupError
from corelane.tasks.question_answering.tune.training.checkpoints import read_tensors
from corelane.tasks.question_answering.tune.training.dataset import Dataset
from corelane.tasks.question_answering.tune.training.evaluator import Evaluator
from corelane.tasks.question_answering.tune.training.examples import (
    ExampleSplit,
    read_examples,
    split_examples,
    squad_layout,
)
from corelane.tasks.question_answering.tune.training.loop import BEST, Objective, Training, gold_alone
from corelane.tasks.question_answering.tune.training.network import TrainableModel, load_trainable, save, save_start
from corelane.tasks.question_answering.tune.training.plan import TrainingPlan
from corelane.tasks.question_answering.tune.training.progress import Say
from corelane.tasks.question_answering.tune.training.teachers import consult, follow

#: Files and folders of a run, besides those of its loop.
RUN, LOCK, START, MODEL, DEV = "run.json", "lock", "start", "model", "dev.json"

#: Dtypes in which a model can be saved.
SAVED = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run: the folder of its model, its figures and how long it took."""

    model: Path
    figures: dict[str, Any]
    elapsed_s: float


def tune(
    plan: TrainingPlan,
    folder: Path,
    models_dir: Path,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
    checkpoint_s: float = 300.0,
) -> Finished | None:
    """Run a plan to its end, or resume it; None if ``stopped`` ended it early, after a checkpoint."""
    split = read_split(plan)
    with alone(folder):
        plan = open_run(plan, folder, models_dir)
        keep_memory()
        torch.set_num_threads(plan.threads)
        model = load_trainable(folder / START, plan.precision, plan.dropout, plan.frozen)
        source, targets = model.source, plan.soft_targets
        plan = replace(plan, max_length=min(plan.max_length, source.max_positions or plan.max_length))
        # Teachers read each row once, so with teachers the rows are the same in every epoch.
        dataset = Dataset(split.train, plan.shares, source.tokenizer, source.spec, plan, fixed=targets is not None)
        evaluator = Evaluator(split.dev, source, plan.max_length)
        say(introduce(split, dataset, evaluator, model))
        # For calibrating and comparing versions.
        (folder / DEV).write_text(json.dumps(squad_layout(split.dev), ensure_ascii=False) + "\n", encoding="utf-8")
        objective: Objective = gold_alone
        if targets is not None:
            logits = consult(targets, model, dataset, plan.epochs, folder, models_dir, say, stopped)
            if logits is None:
                return None
            objective = follow(logits, targets)
        record = Training(model, dataset, evaluator, plan, checkpoint_s, folder, objective).follow(say, stopped)
        if record is None:
            return None
        save_best(folder, plan)
    best = record.best_figures
    say(f"done in {duration(record.elapsed_s)}: F1 {best['f1']:.2f} after step {best['step']:,}")
    return Finished(folder / MODEL, best, record.elapsed_s)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder of a run; raise SetupError if another process holds it, or if it cannot be written."""
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


def read_split(plan: TrainingPlan) -> ExampleSplit:
    """Read and check every file of a plan, and set the development part aside."""
    files = [read_examples(path)[: plan.limit] for path in plan.files]
    dev = [each for path in plan.dev or () for each in read_examples(path)]
    return split_examples(files, dev, plan.set_aside or (), plan.dev_share)


def open_run(plan: TrainingPlan, folder: Path, models_dir: Path) -> TrainingPlan:
    """Begin a run in its folder, or check that it is this one; return the plan with the threads that it began with."""
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


def introduce(split: ExampleSplit, dataset: Dataset, evaluator: Evaluator, model: TrainableModel) -> str:
    """Return a sentence on what will be learnt."""
    asked = sum(map(len, split.train))
    unanswerable = sum(not each.answers for file in split.train for each in file)
    dtype = str(next(model.module.parameters()).dtype).removeprefix("torch.")
    where = "a GPU" if model.device == "cuda" else f"{torch.get_num_threads()} threads"
    left_out = asked - len(dataset.items)
    return (
        f"{asked:,} questions to learn from, {unanswerable:,} of them unanswerable; {len(evaluator):,} to judge by; "
        f"{split.dropped:,} dropped that share an article or passage with these, {left_out:,} too long; "
        f"{model.source.weights / 1e6:.1f} M weights, {dtype} on {where}"
    )


def save_best(folder: Path, plan: TrainingPlan) -> None:
    """Write the best average of a run as a model. Weights that were not trained are as they were at the start."""
    weights, figures = read_tensors(folder / BEST)
    with quiet_transformers():
        network = load_model(find_source(str(folder / START), folder)).network
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if name in weights:
                    weight.copy_(weights[name])
        save(network, folder / START, folder / MODEL, SAVED[plan.saved_as], figures["threshold"])
