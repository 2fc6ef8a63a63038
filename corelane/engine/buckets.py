"""Buckets: the fixed shapes, rows × length, that an artifact is compiled for. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from corelane.errors import CompileFailed

#: The default ladder. Windows that share a batch differ by less than 32 tokens, and if lengths are flexible the rows
#: are cut to the longest. The row counts keep a batch near 1,000 tokens; a CPU core is within 2 % of its full speed
#: from half of that.
DEFAULT_BUCKETS = "16x64,10x96,8x128,6x160,5x192,4x224,4x256,3x288,3x320,3x384,2x448,2x512"

#: Buckets for models that read more. They are few, because each takes as long to compile as all shorter ones together;
#: rows are cut to the longest, so a row of 600 tokens takes no longer in one of 1,024 than in one of 640.
LONG_BUCKETS = "1x1024,1x2048,1x4096,1x8192"

#: Buckets for short texts, where rows are flexible: single sentences take a quarter less time than in rows of 64.
SHORT_BUCKETS = "64x16,32x32"

#: Shapes of one row in addition to the default ladder, if rows are fixed: without them a lone item would run full
#: rows. On a core of inf2 BERT-base takes 1.0 ms for 1 x 128, and 6.0 for 8 x 128 (AWS Neuron documents, Inf2,
#: 2026-02-26).
LONE_BUCKETS = "1x128,1x256,1x384,1x512"

#: Means the default ladder, cut to the longest text that a model can read.
AUTO_BUCKETS = "auto"

#: Row lengths are cut to a multiple of this, in tokens. Each length needs its own kernels, made in 3 to 7 ms.
LENGTH_STEP = 8

#: Shorter rows leave no room for a short item.
MIN_LENGTH = 16


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A fixed shape; sorts by length, then rows."""

    length: int
    rows: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.length}"

    @property
    def places(self) -> int:
        """Return how many tokens the bucket holds."""
        return self.rows * self.length


def parse_buckets(text: str, *, fixed_rows: bool = False) -> tuple[Bucket, ...]:
    """Parse ``ROWSxLENGTH,…`` into a ladder of growing length; raises CompileFailed naming the bad part.

    A length may have several row counts only if rows are fixed.
    """
    buckets = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})x(\d{1,5})\s*", part)
        if match is None or int(match[1]) < 1:
            raise CompileFailed(f"{part.strip()!r} is not a bucket; write ROWSxLENGTH, as in {DEFAULT_BUCKETS}")
        if int(match[2]) < MIN_LENGTH:
            raise CompileFailed(f"bucket {part.strip()} is shorter than {MIN_LENGTH} tokens; take a longer one")
        buckets.append(Bucket(length=int(match[2]), rows=int(match[1])))
    if len(set(buckets)) != len(buckets):
        raise CompileFailed(f"a bucket stands twice in {text!r}; give each once")
    if not fixed_rows and len(tallest(buckets)) != len(buckets):
        raise CompileFailed(
            f"two buckets have the same length in {text!r}; give each length once: here batches have any rows up to "
            "the bucket's"
        )
    return tuple(sorted(buckets))


def tallest(ladder: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """Return, for each length, the bucket with the most rows, by growing length."""
    return tuple({bucket.length: bucket for bucket in sorted(ladder)}.values())


def fitting_buckets(most: int | None, *, fixed_rows: bool = False, short_texts: bool = False) -> tuple[Bucket, ...]:
    """Return the default ladder up to ``most`` tokens a row, where its last bucket ends; None is up to 512.

    If rows are fixed, it also has shapes of one row, and none of more than 512 tokens; if not, and texts are often
    short, buckets for these.
    """
    added = LONE_BUCKETS if fixed_rows else f"{SHORT_BUCKETS},{LONG_BUCKETS}" if short_texts else LONG_BUCKETS
    default = parse_buckets(DEFAULT_BUCKETS)
    ladder = parse_buckets(f"{DEFAULT_BUCKETS},{added}", fixed_rows=True)
    end = default[-1].length if most is None else min(most, ladder[-1].length)
    fitting = tuple(bucket for bucket in ladder if bucket.length <= end)
    if fitting and fitting[-1].length == end:
        return fitting
    return (*fitting, Bucket(length=end, rows=next(bucket.rows for bucket in ladder if bucket.length > end)))


def cut_to(longest: int) -> int:
    """Return the length that rows of up to ``longest`` tokens are cut to, if lengths are flexible."""
    return -(-longest // LENGTH_STEP) * LENGTH_STEP
