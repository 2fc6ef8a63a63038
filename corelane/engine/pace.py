"""How long a row of each bucket takes here, and so how many rows a batch may have to be done in time.

A moving average of what was measured: a core that slows down, because of its neighbours or its heat, soon gets smaller
batches, and larger ones again when it recovers.
"""

from corelane.engine.buckets import Bucket

#: The share of the newest batch in the average: a busy moment of the machine is forgotten within some ten batches.
NEWEST_SHARE = 0.2


class Pace:
    """Seconds a row by bucket. What was never measured is not limited."""

    def __init__(self, target_s: float) -> None:
        """``target_s`` is the longest time one batch should take."""
        self._target_s = target_s
        self._row_s: dict[Bucket, float] = {}

    def note(self, bucket: Bucket, rows: int, seconds: float) -> None:
        """So many rows of a bucket took so long."""
        newest = seconds / rows
        before = self._row_s.get(bucket, newest)
        self._row_s[bucket] = before + NEWEST_SHARE * (newest - before)

    def rows(self, bucket: Bucket) -> int:
        """Rows that are done in time; one at least, and never more than the bucket's."""
        row_s = self._row_s.get(bucket, 0.0)
        return max(1, int(min(bucket.rows, self._target_s / row_s))) if row_s > 0 else bucket.rows
