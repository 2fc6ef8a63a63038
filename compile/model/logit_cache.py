"""Compute the eager network's logits once for each row of tokens, in parallel with the compiler if a CPU is free."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from compile.model.beside import Child, places
from compile.model.reference import Run, put_together
from compile.tasks.task import CompileTask
from corelane.engine.backends.protocol import Logits, WindowBatch

#: Tokens of one pass over several rows: as many as a batch has.
PASS_TOKENS = 1024


class LogitCache:
    """A network as a function that computes each row of tokens once, whatever batches it comes in.

    From one length to the next, most rows of the samples stay the same. Logits of hidden tokens are zeros.
    """

    def __init__(self, task: CompileTask, run: Run, pad_id: int = 0) -> None:
        """Run rows of unequal length together, padded with token ``pad_id``."""
        self._task = task
        self._run = run
        self._pad_id = pad_id
        self._known: dict[bytes, Logits | None] = {}
        self._ahead: Child[dict[bytes, Logits | None]] | None = None

    def __call__(self, batch: WindowBatch) -> Logits:
        """Return a batch's logits; rows in which no token is visible are not computed."""
        rows = _rows_of(batch)
        if self._ahead is not None and any(key not in self._known for key, _ in rows):
            child, self._ahead = self._ahead, None
            self._known |= child.result()
        missing = {key: row for key, row in rows if key not in self._known}
        self._known |= _compute(self._task, self._run, missing, self._pad_id)
        found = {number: known for number, (key, _) in enumerate(rows) if (known := self._known[key]) is not None}
        return put_together(self._task, found, batch)

    def begin(self, batches: Iterable[WindowBatch]) -> None:
        """Start computing these batches in a child process, if a CPU is free for it."""
        rows = {key: row for batch in batches for key, row in _rows_of(batch)}
        if places() > 1:
            with suppress(OSError):
                self._ahead = Child(partial(_compute, self._task, self._run, rows, self._pad_id))

    def end(self) -> None:
        """End the child if its rows were not needed."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


def _rows_of(batch: WindowBatch) -> list[tuple[bytes, WindowBatch]]:
    """Return each row up to its last visible token, with a key that identifies it."""
    rows = []
    for number, mask in enumerate(batch.attention_mask):
        length = int(mask.nonzero()[0][-1]) + 1 if mask.any() else 0
        arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        row = WindowBatch(batch.bucket, *(array[number : number + 1, :length] for array in arrays))
        rows.append((b"".join(array[number, :length].tobytes() for array in arrays), row))
    return rows


def _compute(task: CompileTask, run: Run, rows: Mapping[bytes, WindowBatch], pad_id: int) -> dict[bytes, Logits | None]:
    """Return the logits of rows. Each is computed together with others of similar length."""
    found: dict[bytes, Logits | None] = {}
    ordered = sorted(rows.items(), key=lambda item: item[1].input_ids.shape[1])
    while ordered:
        width = ordered[-1][1].input_ids.shape[1]
        count = max(1, PASS_TOKENS // max(1, width))
        part, ordered = ordered[-count:], ordered[:-count]
        if width == 0:
            found |= dict.fromkeys(key for key, _ in part)
            continue
        columns = zip(*((row.input_ids, row.attention_mask, row.token_type_ids) for _, row in part), strict=True)
        together = (
            np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=filler) for a in arrays])
            for arrays, filler in zip(columns, (pad_id, 0, 0), strict=True)
        )
        logits = run(WindowBatch(part[0][1].bucket, *together))
        for number, (key, row) in enumerate(part):
            its = tuple(each[number : number + 1] for each in logits)
            found[key] = tuple(each[:, : row.input_ids.shape[1]] for each in its) if task.per_token else its
    return found
