"""The training loop: batches in, gradients, weights, checkpoints; the result is the best average of the weights.

A run ended at any moment resumes from its last checkpoint, and ends with the same weights, bit for bit, on the same
machine. Batches depend on the seed, a step's random numbers on its number, all else is saved.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compile.model.reference import runner_of
from corelane.tasks.question_answering.tune.training.checkpoints import last_checkpoint, write_checkpoint, write_tensors
from corelane.tasks.question_answering.tune.training.dataset import Dataset, Filled, Row, passes
from corelane.tasks.question_answering.tune.training.evaluator import Evaluator
from corelane.tasks.question_answering.tune.training.loss import log_shares, marginal_loss, readable
from corelane.tasks.question_answering.tune.training.network import TrainableModel, arguments
from corelane.tasks.question_answering.tune.training.plan import TrainingOptions
from corelane.tasks.question_answering.tune.training.progress import Say, TrainingProgress
from corelane.tasks.question_answering.tune.training.weights import Fp32Weights

#: Files and folders of a run.
CHECKPOINTS, BEST, LOG = "checkpoints", "best.safetensors", "log.jsonl"

#: The whole loss of a batch, which may include the marginal loss. Arguments: rows, start and end logits, and the tokens
#: that an answer may have.
Objective = Callable[[list[Row], Filled, Tensor, Tensor, Tensor], Tensor]


@dataclass
class RunRecord:
    """The progress of a run: steps done, the best evaluation, evaluations since then, and the time taken."""

    step: int = 0
    best: float | None = None
    best_figures: dict[str, Any] = field(default_factory=dict)
    since_best: int = 0
    elapsed_s: float = 0.0


@dataclass
class Training:
    """One run: the network, its data, its evaluator, the seconds between two checkpoints, its folder, and its loss."""

    model: TrainableModel
    dataset: Dataset
    evaluator: Evaluator
    options: TrainingOptions
    checkpoint_s: float
    folder: Path
    objective: Objective

    def __post_init__(self) -> None:
        self.weights = Fp32Weights(self.model.weights, self.options, self.model.start)
        self.record = RunRecord()

    def follow(self, say: Say, stopped: Callable[[], bool] = lambda: False) -> RunRecord | None:
        """Train, or resume from the last checkpoint, and store the best average; None if ``stopped`` says so."""
        sizes = [len(self.dataset.epoch(epoch)) for epoch in range(self.options.epochs)]
        record = self.record
        if (kept := last_checkpoint(self.folder / CHECKPOINTS)) is not None:
            self.weights.restore(kept[0])
            record = self.record = RunRecord(**kept[1])
            say(f"going on after step {record.step:,} of {sum(sizes):,}")
        marks, saved = judged_after(sizes, self.options.judged), time.monotonic()
        with closing(TrainingProgress(self.folder / LOG, say, record.step, record.elapsed_s)) as progress:
            for epoch, rows in batches(self.dataset, sizes, record.step):
                if record.since_best >= self.options.patience:
                    break
                self._step(epoch, rows, sum(sizes), progress)
                if record.step in marks:
                    self._look_up(progress)
                ends = stopped()
                if record.step in marks or ends or time.monotonic() - saved >= self.checkpoint_s:
                    record.elapsed_s = progress.elapsed_s
                    write_checkpoint(self.folder / CHECKPOINTS, record.step, self.weights.state(), vars(record))
                    saved = time.monotonic()
                if ends:
                    return None
        return record

    def _step(self, epoch: int, rows: list[Row], steps: int, progress: TrainingProgress) -> None:
        record = self.record
        # A step's random numbers depend on its number, so a resumed run draws the same.
        torch.manual_seed((self.options.seed << 32) + record.step)
        loss = run_step(self.model, self.dataset, rows, self.objective)
        norm = self.weights.step(record.step, steps)
        record.step += 1
        progress.step(record.step, steps, epoch, sum(row.length for row in rows), {"loss": loss, "norm": norm})

    def _look_up(self, progress: TrainingProgress) -> None:
        """Evaluate the average of the weights, and store it if it is the best."""
        record, weights, module = self.record, self.weights, self.model.module
        weights.show(weights.average)
        module.eval()
        scores = self.evaluator.evaluate(runner_of(module, self.model.device))
        module.train()
        weights.show(weights.flat)
        is_best = record.best is None or scores.score > record.best
        record.since_best = 0 if is_best else record.since_best + 1
        if is_best:
            record.best, record.best_figures = scores.score, scores.as_data() | {"step": record.step}
            write_tensors(self.folder / BEST, weights.averaged(), record.best_figures)
        progress.judged(record.step, scores.as_data(), is_best)


def run_step(model: TrainableModel, dataset: Dataset, rows: list[Row], objective: Objective) -> float:
    """Add the gradients of a batch to the network, and return its loss. A CPU takes it in several passes."""
    total = 0.0
    for part in [rows] if model.device == "cuda" else passes(rows):
        filled = dataset.fill(part)
        batch = filled.batch
        starts, ends = model.module(*arguments(model, batch.input_ids, batch.attention_mask, batch.token_type_ids))
        allowed = readable(starts.shape[1], *arguments(model, filled.context_at, filled.last))
        loss = objective(part, filled, starts, ends, allowed) * (len(part) / len(rows))
        loss.backward()
        total += float(loss.detach())
    return total


def gold_alone(_: list[Row], filled: Filled, starts: Tensor, ends: Tensor, allowed: Tensor) -> Tensor:
    """Return the marginal loss of a batch."""
    return marginal_loss(log_shares(starts, allowed), log_shares(ends, allowed), filled.spans)


def batches(dataset: Dataset, sizes: list[int], done: int) -> Iterator[tuple[int, list[Row]]]:
    """Yield the batches after the first ``done`` batches, each with its epoch."""
    for epoch, size in enumerate(sizes):
        if done < size:
            yield from ((epoch, rows) for rows in dataset.epoch(epoch)[done:])
        done = max(0, done - size)


def judged_after(sizes: list[int], times: int) -> set[int]:
    """Return the steps after which the development part is evaluated: ``times`` in each epoch, the last at its end."""
    found, before = set(), 0
    for size in sizes:
        found |= {before + max(1, size * number // times) for number in range(1, times + 1)}
        before += size
    return found
