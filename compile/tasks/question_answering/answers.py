"""The answers that a network gives to the samples, as places of tokens."""

from collections.abc import Sequence

import numpy as np

from compile.tasks.task import Row
from corelane.engine.backends.protocol import Logits
from corelane.tasks.question_answering.engine.spans import find_spans

#: First and last context token of an answer, counted within its item.
Answer = tuple[int, int]


def find_answers(parts: Sequence[Sequence[Row]], logits: Sequence[Logits]) -> dict[int, Answer]:
    """Return the best span of each query over all its windows, even if "no answer" is more likely."""
    best: dict[int, tuple[float, Answer]] = {}
    for rows, (starts, ends) in zip(parts, logits, strict=True):
        for row, (item, reading, window) in enumerate(rows):
            found = find_spans(
                starts[row : row + 1],
                ends[row : row + 1],
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
