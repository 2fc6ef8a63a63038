"""The sample texts as batches of one bucket, made and read by the engine's own code."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from compile.model.families import FAMILIES
from compile.model.loading import SourceModel
from compile.model.refusing import refusing
from compile.tasks.task import CompileTask, Row
from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import Query
from corelane.engine.text.engine import TextEngine
from corelane.errors import CompileFailed


@dataclass(frozen=True, slots=True)
class Probe:
    """Windows of samples in batches, and the eager network's outputs for each batch.

    In a bucket's probe the shortest window comes first, so row 0 of the first batch has padding if any row has.
    """

    task: CompileTask
    rows: Sequence[Sequence[Row]]
    batches: Sequence[WindowBatch]
    expected: Sequence[Logits]

    @property
    def found(self) -> Mapping[int, Any]:
        """Return the eager network's result for each sample, by the sample's number."""
        return self.task.found(self.rows, self.expected)


def make_probe(model: SourceModel, bucket: Bucket, run_eager: Pass) -> Probe:
    """Cut the samples for a bucket and run the eager network; raises CompileFailed if none fits."""
    with _running(model):
        parts, batches = fill_probe(model.task, model.tokenizer, model.spec, bucket)
        return Probe(model.task, parts, batches, [run_unpadded(model.task, run_eager, batch) for batch in batches])


def fill_probe(
    task: CompileTask, tokenizer: Tokenizer, spec: TokenizerSpec, bucket: Bucket
) -> tuple[list[list[Row]], list[WindowBatch]]:
    """Return the samples as rows and batches of a bucket; raises CompileFailed if none fits."""
    engine = task.engine(tokenizer, spec, bucket.length)
    rows = read_rows(engine, task.samples())
    if not rows:
        raise CompileFailed(f"bucket {bucket} is too short for even a short item; take a longer one")
    return fill_batches(engine, bucket, sorted(rows, key=lambda row: row[2].length))


def read_rows(engine: TextEngine, queries: Sequence[Query]) -> list[Row]:
    """Return all windows of the queries that fit."""
    return [
        (number, item, window)
        for number, item in enumerate(engine.tokenize_all(queries))
        if not isinstance(item, dict)
        for window in item.windows
    ]


def fill_batches(engine: TextEngine, bucket: Bucket, rows: Sequence[Row]) -> tuple[list[list[Row]], list[WindowBatch]]:
    """Return the rows of each batch of a bucket, and the batches."""
    parts = [list(rows[at : at + bucket.rows]) for at in range(0, len(rows), bucket.rows)]
    return parts, [engine.fill(bucket, [(read, window) for _, read, window in part], bucket.rows) for part in parts]


def check_runs(model: SourceModel, run_eager: Pass, bucket: Bucket) -> None:
    """Run the eager network once; raises ModelRefused if it cannot run on a row of its task."""
    with _running(model):
        _, batches = fill_probe(model.task, model.tokenizer, model.spec, Bucket(length=bucket.length, rows=1))
        run_unpadded(model.task, run_eager, batches[0])


def _running(model: SourceModel) -> AbstractContextManager[None]:
    label, task = model.source.label, model.task.name
    return refusing(label, f"{label} does not run on rows as Corelane puts them together for {task} ({FAMILIES})")


def run_unpadded(task: CompileTask, run: Pass, batch: WindowBatch, step: int = 1) -> Logits:
    """Run a batch without the columns that are padding in every row; their logits are zeros.

    The number of columns left out is a multiple of ``step``.
    """
    width = min(batch.bucket.length, -(-int(batch.attention_mask.sum(axis=1).max()) // step) * step)
    logits = run(batch.cut(width))
    return pad_tokens(logits, batch.bucket.length - width) if task.per_token else logits


def pad_tokens(logits: Logits, count: int) -> Logits:
    """Add zeros for more tokens to the outputs of each row."""
    return tuple(np.pad(each, ((0, 0), (0, count), *((0, 0) for _ in each.shape[2:]))) for each in logits)
