"""How a model is warmed up before it answers: which passes of which batches. Pure.

TorchScript profiles a graph for two passes and runs at full speed from the third: 0.09 s more for the built-in model.
A graph that several lengths share is profiled once. A length that was never run then costs 2 to 5 ms more in its first
pass, in which oneDNN makes its kernels; so on the CPU each length runs once, with one row, and a full batch runs cold.
Its logits are the same. Warmed up this way the built-in model takes 0.3 s of CPU, and 4.7 s with every batch three
times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.engine.buckets import Bucket

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
FIRST_PASSES = 3


@dataclass(frozen=True, slots=True)
class WarmUp:
    """So many passes of one batch: a bucket, and the rows in it."""

    bucket: Bucket
    rows: int
    passes: int = FIRST_PASSES


def warm_ups(ladder: Sequence[tuple[Bucket, str]], *, flexible_rows: bool, shares_kernels: bool) -> list[WarmUp]:
    """Return the passes that bring a model to speed; ``ladder`` are its buckets with their files.

    Where lengths of a file share kernels (``shares_kernels``) its first length alone is warmed up in full. Elsewhere
    every bucket is, with a single row, if rows are flexible, and full.
    """
    if not (flexible_rows and shares_kernels):
        return [
            WarmUp(bucket, rows)
            for bucket, _ in ladder
            for rows in ((1, bucket.rows) if flexible_rows else (bucket.rows,))
        ]
    seen: set[str] = set()
    found = []
    for bucket, file in ladder:
        found.append(WarmUp(bucket, 1, 1 if file in seen else FIRST_PASSES))
        seen.add(file)
    return found
