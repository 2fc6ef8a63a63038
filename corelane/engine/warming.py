"""The passes that warm a model up before it answers. Pure.

TorchScript profiles a graph for two passes and runs at full speed from the third. What a graph has of compiled
functions (bf16's attention) it profiles again at every length: 20 to 40 ms each time for the built-in model. More rows
of a length that is warm cost 2 to 5 ms more in their first pass, in which oneDNN makes its kernels. So on the CPU every
length runs three times with one row, and a full batch runs cold. Its logits are the same. Warmed up this way the
built-in model takes a fifth of the CPU time that every batch three times takes.
"""

from collections.abc import Sequence

from corelane.engine.buckets import Bucket

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
PASSES = 3


def warm_ups(ladder: Sequence[Bucket], *, flexible_rows: bool, rows_share_kernels: bool) -> list[tuple[Bucket, int]]:
    """Return the batches that bring a model to speed, each run ``PASSES`` times: a bucket, and the rows in it.

    Rows are run full where they are fixed. Where they are flexible one row is run too; alone where others cost next to
    nothing then (``rows_share_kernels``).
    """
    alone, full = flexible_rows, not (flexible_rows and rows_share_kernels)
    return [(bucket, rows) for bucket in ladder for rows, runs in ((1, alone), (bucket.rows, full)) if runs]
