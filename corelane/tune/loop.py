"""The training loop: batches in, gradients, weights, checkpoints; the best average of the weights comes out.

A run that ends at any moment goes on from its last checkpoint to the same weights, bit for bit, on the same machine:
batches follow from the seed, a step's random numbers from its number, and all else is in the checkpoint.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compile.model.reference import runner_of
from corelane.tune.checkpoints import last_checkpoint, write_checkpoint, write_tensors
from corelane.tune.judge import Judge
from corelane.tune.loss import log_shares, marginal_loss, readable
from corelane.tune.masters import Masters, Recipe
from corelane.tune.network import Trainee, arguments
from corelane.tune.progress import Progress, Say
from corelane.tune.rows import Filled, Material, Row

#: Files and folders of a run.
CHECKPOINTS, BEST, LOG = "checkpoints", "best.safetensors", "log.jsonl"

#: Apart from the marginal loss, what a batch's logits are judged by: rows, start and end logits, and the tokens that an
#: answer may have. Returns the whole loss.
Objective = Callable[[list[Row], Filled, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Course:
    """How long a run learns, and when it looks up.

    ``judged`` is how often an epoch the development part is judged; after ``patience`` judgements without a better one
    the run ends. ``checkpoint_s`` is the time between checkpoints.
    """

    epochs: int
    judged: int
    patience: int
    checkpoint_s: float
    seed: int
    recipe: Recipe


@dataclass
class Record:
    """Where a run is: steps done, the best judgement, judgements since, and the time taken."""

    step: int = 0
    best: float | None = None
    best_figures: dict[str, Any] = field(default_factory=dict)
    since_best: int = 0
    elapsed_s: float = 0.0


def train(
    trainee: Trainee,
    material: Material,
    judge: Judge,
    course: Course,
    folder: Path,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
    objective: Objective | None = None,
) -> Record | None:
    """Train, or go on where the folder's last checkpoint is; None if ``stopped`` says so, after a checkpoint.

    The best average of the weights is kept in the folder.
    """
    sizes = [len(material.epoch(epoch)) for epoch in range(course.epochs)]
    steps = sum(sizes)
    masters = Masters(trainee.weights, course.recipe, trainee.start)
    record = Record()
    if (kept := last_checkpoint(folder / CHECKPOINTS)) is not None:
        masters.restore(kept[0])
        record = Record(**kept[1])
        say(f"going on after step {record.step:,} of {steps:,}")
    progress = Progress(folder / LOG, say, record.step, record.elapsed_s)
    marks = judged_after(sizes, course.judged)
    saved = time.monotonic()

    def keep() -> None:
        record.elapsed_s = progress.elapsed_s
        write_checkpoint(folder / CHECKPOINTS, record.step, masters.state(), vars(record))

    for epoch, rows in batches(material, sizes, record.step):
        if record.since_best >= course.patience:
            break
        # A step's random numbers follow from its number: a resumed run draws the same.
        torch.manual_seed((course.seed << 32) + record.step)
        filled = material.fill(rows)
        loss = run_step(trainee, rows, filled, objective)
        norm = masters.step(record.step, steps)
        record.step += 1
        tokens = sum(row.length for row in rows)
        progress.step(record.step, steps, epoch, tokens, {"loss": loss, "norm": norm})
        if record.step in marks:
            _judge(trainee, masters, judge, record, folder, progress)
        if record.step in marks or stopped() or time.monotonic() - saved >= course.checkpoint_s:
            keep()
            saved = time.monotonic()
        if stopped():
            progress.close()
            return None
    progress.close()
    return record


def run_step(trainee: Trainee, rows: list[Row], filled: Filled, objective: Objective | None) -> float:
    """Add the gradients of a batch to the network, and return its loss."""
    batch = filled.batch
    starts, ends = trainee.module(*arguments(trainee, batch.input_ids, batch.attention_mask, batch.token_type_ids))
    allowed = readable(starts.shape[1], *arguments(trainee, filled.context_at, filled.last))
    if objective is None:
        loss = marginal_loss(log_shares(starts, allowed), log_shares(ends, allowed), filled.spans)
    else:
        loss = objective(rows, filled, starts, ends, allowed)
    loss.backward()
    return float(loss.detach())


def batches(material: Material, sizes: list[int], done: int) -> Iterator[tuple[int, list[Row]]]:
    """Yield the batches after those that are done, each with its epoch."""
    for epoch, size in enumerate(sizes):
        if done < size:
            yield from ((epoch, rows) for rows in material.epoch(epoch)[done:])
        done = max(0, done - size)


def judged_after(sizes: list[int], times: int) -> set[int]:
    """Return the steps after which the development part is judged: ``times`` in each epoch, at its end too."""
    found, before = set(), 0
    for size in sizes:
        found |= {before + max(1, size * number // times) for number in range(1, times + 1)}
        before += size
    return found


def _judge(trainee: Trainee, masters: Masters, judge: Judge, record: Record, folder: Path, progress: Progress) -> None:
    """Judge the average of the weights, and keep it if it is the best."""
    masters.show(masters.average)
    trainee.module.eval()
    verdict = judge.judge(runner_of(trainee.module, trainee.device))
    trainee.module.train()
    masters.show(masters.flat)
    is_best = record.best is None or verdict.f1 > record.best
    record.since_best = 0 if is_best else record.since_best + 1
    if is_best:
        record.best, record.best_figures = verdict.f1, verdict.as_data() | {"step": record.step}
        write_tensors(folder / BEST, masters.averaged(), record.best_figures)
    progress.judged(record.step, verdict.as_data(), is_best)
