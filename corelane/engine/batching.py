"""Packing windows of any items into batches, bucket by bucket. Pure: no clock, no queue.

A window goes to the shortest bucket that holds it, so that windows of like length share a batch and little of it is
padding; within a bucket they keep the order they came in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from corelane.engine.buckets import Bucket, smallest_fit


@dataclass(frozen=True, slots=True)
class Packed:
    """The windows, by position in the input, that run in one batch of a bucket."""

    bucket: Bucket
    windows: tuple[int, ...]


def pack_windows(lengths: Sequence[int], ladder: Sequence[Bucket]) -> list[Packed]:
    """Every window in exactly one batch, none over its bucket's rows; ValueError if one fits no bucket."""
    by_bucket: dict[Bucket, list[int]] = {}
    for position, length in enumerate(lengths):
        by_bucket.setdefault(smallest_fit(length, ladder), []).append(position)
    return [
        Packed(bucket, tuple(waiting[at : at + bucket.rows]))
        for bucket, waiting in sorted(by_bucket.items())
        for at in range(0, len(waiting), bucket.rows)
    ]
