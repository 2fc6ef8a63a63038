"""The teachers of a student: the mean of their logits for every row, computed once and stored; and the loss that uses
it.

Rows are the same in every epoch here, so a teacher reads each one once. A teacher's logits are a file of the run, so a
killed run then asks only the teachers without a file.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import ModelSource, find_source
from corelane.errors import ModelRefused
from corelane.tasks.question_answering.tune.training.checkpoints import read_tensors, write_tensors
from corelane.tasks.question_answering.tune.training.dataset import PASS_TOKENS, Dataset, Filled, Row, split_sorted
from corelane.tasks.question_answering.tune.training.loop import Objective, gold_alone
from corelane.tasks.question_answering.tune.training.loss import distance
from corelane.tasks.question_answering.tune.training.network import TrainableModel
from corelane.tasks.question_answering.tune.training.plan import SoftTargets
from corelane.tasks.question_answering.tune.training.progress import Say

#: Rows read between two checks whether the run was stopped.
ROWS_AT_ONCE = 4096


#: The teachers' mean logits, start and end, of every row.
TeacherLogits = Mapping[Row, Tensor]


def follow(logits: TeacherLogits, targets: SoftTargets) -> Objective:
    """Return the loss of a student: its distance to the teachers and the marginal loss."""

    def objective(rows: list[Row], filled: Filled, starts: Tensor, ends: Tensor, allowed: Tensor) -> Tensor:
        wanted = torch.zeros(2, *starts.shape)
        for number, row in enumerate(rows):
            wanted[:, number, : row.length] = logits[row]
        pairs = zip((starts, ends), wanted.to(starts.device), strict=True)
        gaps = [distance(*pair, allowed, targets.temperature) for pair in pairs]
        own = gold_alone(rows, filled, starts, ends, allowed)
        return targets.part * (gaps[0] + gaps[1]) + (1 - targets.part) * own

    return objective


def consult(
    targets: SoftTargets,
    model: TrainableModel,
    dataset: Dataset,
    epochs: int,
    folder: Path,
    models_dir: Path,
    say: Say,
    stopped: Callable[[], bool],
) -> TeacherLogits | None:
    """Have every teacher read all rows, if it did not yet; None if ``stopped`` says so. Raises ModelRefused."""
    distinct = {row for epoch in range(epochs) for rows in dataset.epoch(epoch) for row in rows}
    rows = sorted(distinct, key=lambda row: (-row.length, row.item, row.passage))
    size = sum(row.length for row in rows)
    means = torch.zeros(2, size)
    for number, (name, weight) in enumerate(zip(targets.teachers, targets.weights, strict=True)):
        source = find_source(name, models_dir)
        path = folder / f"teacher-{number}.safetensors"
        logits = _kept(path, source, size)
        if logits is None:
            say(f"teacher {number + 1} of {len(targets.teachers)}, {source.label}, reads {size:,} tokens")
            logits = _ask(source, model, dataset, rows, stopped)
            if logits is None:
                return None
            write_tensors(path, {"logits": logits}, {"digest": source.digest})
        means += logits.float() * (weight / sum(targets.weights))
    return dict(zip(rows, means.split([row.length for row in rows], dim=1), strict=True))


def _kept(path: Path, source: ModelSource, size: int) -> Tensor | None:
    """Return a teacher's logits from an earlier start of the run."""
    try:
        tensors, record = read_tensors(path)
    except (OSError, SafetensorError):
        return None
    logits = tensors["logits"]
    return logits if record == {"digest": source.digest} and logits.shape == (2, size) else None


def _ask(
    source: ModelSource, model: TrainableModel, dataset: Dataset, rows: Sequence[Row], stopped: Callable[[], bool]
) -> Tensor | None:
    """Return a teacher's start and end logits in fp16, the tokens of all rows joined; None if ``stopped`` says so."""
    with quiet_transformers():
        teacher = load_model(source)
    if teacher.tokenizer.to_str() != model.source.tokenizer.to_str() or teacher.spec != model.source.spec:
        raise ModelRefused(f"{source.label} reads other tokens than the student: a teacher needs the same tokenizer")
    module = wrap(teacher).to(model.device, next(model.module.parameters()).dtype).eval()
    run = runner_of(module, model.device)
    found: list[Tensor] = []
    for at in range(0, len(rows), ROWS_AT_ONCE):
        if stopped():
            return None
        for batch in split_sorted(rows[at : at + ROWS_AT_ONCE], PASS_TOKENS):
            logits = run(dataset.fill(batch).batch)
            for number, row in enumerate(batch):
                pair = torch.from_numpy(logits[0][number]), torch.from_numpy(logits[1][number])
                found.append(torch.stack(pair)[:, : row.length].half())
    return torch.cat(found, dim=1)
