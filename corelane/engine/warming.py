"""The passes that warm a model up before it serves. Pure.

TorchScript profiles a graph for two passes and runs at full speed from the third. Compiled functions in a graph (bf16's
attention) are profiled again at every length: 20 to 40 ms each time for the built-in model. Once a length is warm, more
rows cost only 2 to 5 ms more in their first pass, in which oneDNN makes its kernels. So on the CPU every length runs
three times with one row, and full batches are not warmed up. That does not change logits. For the built-in model it
takes a fifth of the CPU time of running every batch three times.
"""

from collections.abc import Sequence

from corelane.engine.buckets import Bucket

#: TorchScript profiles a graph for two passes and runs at full speed from the third.
PASSES = 3


def warm_ups(ladder: Sequence[Bucket], *, flexible_rows: bool, rows_share_kernels: bool) -> list[tuple[Bucket, int]]:
    """Return the batches that warm a model up, each run ``PASSES`` times: a bucket, and its number of rows.

    Batches of fixed rows are full. If rows are flexible, full batches and single rows are run; only single rows if
    further rows then cost little (``rows_share_kernels``).
    """
    alone, full = flexible_rows, not (flexible_rows and rows_share_kernels)
    return [(bucket, rows) for bucket in ladder for rows, runs in ((1, alone), (bucket.rows, full)) if runs]
