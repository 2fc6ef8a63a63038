"""The sample texts as batches of one bucket, made and read by the engine's own code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compile.model import LoadedModel
from compile.samples import sample_queries
from corelane.engine.backend import Batch, Logits
from corelane.engine.batching import Packed, pack_windows
from corelane.engine.buckets import Bucket
from corelane.engine.reading import Reader, Reading
from corelane.engine.spans import find_spans
from corelane.errors import CompileFailed

Run = Callable[[Batch], Logits]

#: Context tokens from first to last, in its item's own count: an answer.
Answer = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """Windows of the sample texts, in batches of one bucket, and what the eager network makes of them.

    The shortest window comes first, so that row 0 of the first batch has padding wherever a sample leaves some.
    """

    reader: Reader
    reading: Reading
    packed: Sequence[Packed]
    batches: Sequence[Batch]
    expected: Sequence[Logits]


def make_probe(model: LoadedModel, bucket: Bucket, run_eager: Run) -> Probe:
    """Cut the samples for a bucket; raises CompileFailed if not one of their questions fits."""
    reader = Reader(model.tokenizer, model.spec, bucket.length)
    reading = reader.read(sample_queries())
    if not reading.windows:
        raise CompileFailed(f"bucket {bucket} is too short for even a short question; take a longer one")
    reading = replace(reading, windows=sorted(reading.windows, key=lambda window: window.length))
    packed = pack_windows([window.length for window in reading.windows], [bucket])
    batches = [reader.fill(reading, part, bucket.rows) for part in packed]
    return Probe(reader, reading, packed, batches, [_run_unpadded(run_eager, batch) for batch in batches])


def _run_unpadded(run: Run, batch: Batch) -> Logits:
    """Logits of a batch from a run without the columns that are padding in every row; they get zeros."""
    width = int(batch.attention_mask.sum(axis=1).max())
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    logits = run(Batch(batch.bucket, *(array[:, :width] for array in arrays)))
    padding = ((0, 0), (0, batch.bucket.length - width))
    return Logits(np.pad(logits.start, padding), np.pad(logits.end, padding))


def find_answers(probe: Probe, logits: Sequence[Logits]) -> dict[int, Answer]:
    """The best span of each sample over all its windows, whether or not nothing would be likelier."""
    best: dict[int, tuple[float, Answer]] = {}
    for packed, part in zip(probe.packed, logits, strict=True):
        for row, position in enumerate(packed.windows):
            window = probe.reading.windows[position]
            context_at = probe.reader.context_offset(probe.reading, window)
            found = find_spans(
                part.start[row : row + 1],
                part.end[row : row + 1],
                np.array([context_at]),
                np.array([window.length - 1]),
                max_answer_tokens=probe.reading.queries[window.item].options.max_answer_tokens,
                keep=1,
            )[0]
            shift = window.start - context_at
            for start, end, margin in zip(found.starts, found.ends, found.margins, strict=True):
                candidate = (float(margin), (int(start) + shift, int(end) + shift))
                best[window.item] = max(best.get(window.item, candidate), candidate)
    return {item: answer for item, (_, answer) in best.items()}
