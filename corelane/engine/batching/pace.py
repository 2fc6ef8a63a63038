"""How long a row of each bucket takes here, and so how many rows a batch may have to be done in time.

Of the last few batches the fastest counts: one that was held up by other processes says nothing about the core. A core
that slows down for good soon gets smaller batches, and larger ones again when it recovers.

Short batches cost little: a core of an AMD EPYC with AVX-512 runs the built-in model in bf16, with 1, 2, 4, 8 rows, at
158, 209, 240, 250 rows/s of 64 tokens, at 92, 108, 113, 116 of 128, at 45, 47, 48, 47 of 256, at 27, 28, 28, 27 of 384.
SQuAD ran in batches of 60 ms at the speed of full ones, in batches of 40 ms at 96 % of it, of 30 ms at 89 %. So a
job that is alone gets batches half as long again, but for rows that take long by themselves: those gain nothing by
company, and are mostly a document's, beside which others may have questions.
"""

import math
import time
from collections import deque
from collections.abc import Callable

from corelane.engine.buckets import Bucket

#: Batches of a bucket that count: enough that one of them is nearly always undisturbed, and few enough to follow a core
#: that gets hot. With a mean in its place, neighbours that took a third of a CPU halved the batches (speed: -10 %).
RECENT_BATCHES = 8


#: Batches take so much longer while one job is alone, and so long after two took turns they do not, in seconds.
ALONE, ALONE_AFTER_S = 1.5, 30.0


class Pace:
    """Seconds a row by bucket. What was never measured is not limited."""

    def __init__(self, target_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``target_s`` is the longest time one batch should take while several jobs ask."""
        self._target_s = target_s
        self._clock = clock
        self._last_asker: str | None = None
        self._turned_at = -math.inf
        self._row_s: dict[Bucket, deque[float]] = {}

    def note(self, bucket: Bucket, rows: int, seconds: float) -> None:
        """So many rows of a bucket took so long."""
        self._row_s.setdefault(bucket, deque(maxlen=RECENT_BATCHES)).append(seconds / rows)

    def heard(self, asker: str) -> None:
        """Note that an item came; ``asker`` names the owner and the job it is of."""
        if self._last_asker not in (asker, None):
            self._turned_at = self._clock()
        self._last_asker = asker

    def rows(self, bucket: Bucket) -> int:
        """Rows that are done in time; one at least, and never more than the bucket's."""
        row_s = min(self._row_s.get(bucket, ()), default=0.0)
        if row_s <= 0:
            return bucket.rows
        in_time = self._target_s / row_s
        if in_time >= 2 and self._clock() - self._turned_at > ALONE_AFTER_S:
            in_time *= ALONE
        return max(1, int(min(bucket.rows, in_time)))
