"""The sample texts as batches of one bucket, made and read by the engine's own code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from compile.model import LoadedModel
from compile.samples import sample_queries
from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import Bucket
from corelane.engine.decode.spans import find_spans
from corelane.engine.text.tokenize import Reader, Reading
from corelane.engine.text.windows import Window
from corelane.errors import CompileFailed

Run = Callable[[Batch], Logits]

#: Context tokens from first to last, in its item's own count: an answer.
Answer = tuple[int, int]


#: A row of a batch: the number of its sample, what was read of it, and which window of it this is.
Row = tuple[int, Reading, Window]


@dataclass(frozen=True, slots=True)
class Probe:
    """Windows of the sample texts, in batches of one bucket, and what the eager network makes of them.

    The shortest window comes first, so that row 0 of the first batch has padding wherever a sample leaves some.
    """

    rows: Sequence[Sequence[Row]]
    batches: Sequence[Batch]
    expected: Sequence[Logits]


def make_probe(model: LoadedModel, bucket: Bucket, run_eager: Run) -> Probe:
    """Cut the samples for a bucket; raises CompileFailed if not one of their questions fits."""
    parts, batches = fill_probe(model.tokenizer, model.spec, bucket)
    return Probe(parts, batches, [run_unpadded(run_eager, batch) for batch in batches])


def fill_probe(tokenizer: Tokenizer, spec: TokenizerSpec, bucket: Bucket) -> tuple[list[list[Row]], list[Batch]]:
    """The samples as rows and batches of a bucket; raises CompileFailed if not one of their questions fits."""
    reader = Reader(tokenizer, spec, bucket.length)
    readings = enumerate(reader.read(sample_queries()))
    rows = [(item, read, window) for item, read in readings if isinstance(read, Reading) for window in read.windows]
    if not rows:
        raise CompileFailed(f"bucket {bucket} is too short for even a short question; take a longer one")
    rows.sort(key=lambda row: row[2].length)
    parts = [rows[at : at + bucket.rows] for at in range(0, len(rows), bucket.rows)]
    batches = [reader.fill(bucket, [(read, window) for _, read, window in part], bucket.rows) for part in parts]
    return parts, batches


def run_unpadded(run: Run, batch: Batch) -> Logits:
    """Logits of a batch from a run without the columns that are padding in every row; they get zeros."""
    width = int(batch.attention_mask.sum(axis=1).max())
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    logits = run(Batch(batch.bucket, *(array[:, :width] for array in arrays)))
    padding = ((0, 0), (0, batch.bucket.length - width))
    return Logits(np.pad(logits.start, padding), np.pad(logits.end, padding))


def find_answers(probe: Probe, logits: Sequence[Logits]) -> dict[int, Answer]:
    """The best span of each sample over all its windows, whether or not nothing would be likelier."""
    best: dict[int, tuple[float, Answer]] = {}
    for rows, part in zip(probe.rows, logits, strict=True):
        for row, (item, reading, window) in enumerate(rows):
            found = find_spans(
                part.start[row : row + 1],
                part.end[row : row + 1],
                np.array([reading.context_at]),
                np.array([window.length - 1]),
                max_answer_tokens=reading.query.options.max_answer_tokens,
                keep=1,
            )[0]
            shift = window.start - reading.context_at
            for start, end, margin in zip(found.starts, found.ends, found.margins, strict=True):
                candidate = (float(margin), (int(start) + shift, int(end) + shift))
                best[item] = max(best.get(item, candidate), candidate)
    return {item: answer for item, (_, answer) in best.items()}
