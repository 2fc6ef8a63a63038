"""The sample texts as batches of one bucket, made and read by the engine's own code."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from compile.model.families import FAMILIES
from compile.model.loading import SourceModel
from compile.model.reference import Run
from compile.model.samples import sample_queries
from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import Query
from corelane.engine.windows import Window
from corelane.errors import CompileFailed, ModelRefused
from corelane.errors.reasons import first_line
from corelane.tasks.question_answering.engine.spans import find_spans
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, TokenizedQuery

#: First and last context token of an answer, counted within its item.
Answer = tuple[int, int]

#: A row of a batch: the number of its query, the query as it was read, and the window of it in this row.
Row = tuple[int, TokenizedQuery, Window]


@dataclass(frozen=True, slots=True)
class Probe:
    """Windows of queries in batches, and the eager network's logits for each batch.

    In a bucket's probe the shortest window comes first, so row 0 of the first batch has padding if any row has.
    """

    rows: Sequence[Sequence[Row]]
    batches: Sequence[WindowBatch]
    expected: Sequence[Logits]


def make_probe(model: SourceModel, bucket: Bucket, run_eager: Run) -> Probe:
    """Cut the samples for a bucket and run the eager network; raises CompileFailed if no question fits."""
    parts, batches = fill_probe(model.tokenizer, model.spec, bucket)
    return Probe(parts, batches, [run_unpadded(run_eager, batch) for batch in batches])


def fill_probe(tokenizer: Tokenizer, spec: TokenizerSpec, bucket: Bucket) -> tuple[list[list[Row]], list[WindowBatch]]:
    """Return the samples as rows and batches of a bucket; raises CompileFailed if no question fits."""
    task = QuestionAnsweringTask(tokenizer, spec, bucket.length)
    rows = read_rows(task, sample_queries())
    if not rows:
        raise CompileFailed(f"bucket {bucket} is too short for even a short question; take a longer one")
    return fill_batches(task, bucket, sorted(rows, key=lambda row: row[2].length))


def read_rows(task: QuestionAnsweringTask, queries: Sequence[Query]) -> list[Row]:
    """Return all windows of the queries that fit."""
    return [
        (number, item, window)
        for number, item in enumerate(task.tokenize_all(queries))
        if isinstance(item, TokenizedQuery)
        for window in item.windows
    ]


def fill_batches(
    task: QuestionAnsweringTask, bucket: Bucket, rows: Sequence[Row]
) -> tuple[list[list[Row]], list[WindowBatch]]:
    """Return the rows of each batch of a bucket, and the batches."""
    parts = [list(rows[at : at + bucket.rows]) for at in range(0, len(rows), bucket.rows)]
    return parts, [task.fill(bucket, [(read, window) for _, read, window in part], bucket.rows) for part in parts]


def check_runs(model: SourceModel, run_eager: Run, bucket: Bucket) -> None:
    """Run the eager network once; raises ModelRefused if it cannot run on a question and a passage."""
    _, batches = fill_probe(model.tokenizer, model.spec, Bucket(length=bucket.length, rows=1))
    try:
        run_unpadded(run_eager, batches[0])
    except Exception as error:
        # Any error is possible here: each architecture brings its own code.
        raise ModelRefused(
            f"{model.source.label} does not run on a question and a passage as Corelane puts them together: "
            f"{first_line(error)} ({FAMILIES})"
        ) from error


def run_unpadded(run: Run, batch: WindowBatch, step: int = 1) -> Logits:
    """Run a batch without the columns that are padding in every row; their logits are zeros.

    The number of columns left out is a multiple of ``step``.
    """
    width = min(batch.bucket.length, -(-int(batch.attention_mask.sum(axis=1).max()) // step) * step)
    logits = run(batch.cut(width))
    padding = ((0, 0), (0, batch.bucket.length - width))
    return (np.pad(logits[0], padding), np.pad(logits[1], padding))


def find_answers(probe: Probe, logits: Sequence[Logits]) -> dict[int, Answer]:
    """Return the best span of each query over all its windows, even if "no answer" is more likely."""
    best: dict[int, tuple[float, Answer]] = {}
    for rows, part in zip(probe.rows, logits, strict=True):
        for row, (item, reading, window) in enumerate(rows):
            found = find_spans(
                part[0][row : row + 1],
                part[1][row : row + 1],
                np.array([reading.context_at]),
                np.array([reading.ends_at(window)]),
                max_answer_tokens=reading.query.options.max_answer_tokens,
                keep=1,
                null_at=window.length - 1 if reading.null_last else 0,
            )[0]
            shift = window.start - reading.context_at
            for start, end, margin in zip(found.starts, found.ends, found.margins, strict=True):
                candidate = (float(margin), (int(start) + shift, int(end) + shift))
                best[item] = max(best.get(item, candidate), candidate)
    return {item: answer for item, (_, answer) in best.items()}
