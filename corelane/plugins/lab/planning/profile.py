"""A profile: what one core needs for one version, measured, and what a request costs around it. Pure.

A profile is saved as JSON, so that one taken on an instance can be planned with elsewhere. Times are seconds. A batch
of a bucket takes ``base_s`` and ``row_s`` for each row in it; where rows are fixed, the whole time is ``base_s``, and a
length may have several buckets.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corelane.engine.buckets import Bucket, tallest
from corelane.engine.passes import PassTable
from corelane.errors import InvalidInput


class Part(BaseModel):
    """A part of a profile: reads those of later versions too, as unknown fields are passed over."""

    model_config = ConfigDict(extra="ignore")


class ShapeTime(Part):
    """Seconds of a batch of one bucket, and how many batches were measured; none where they were interpolated."""

    rows: int = Field(ge=1)
    length: int = Field(ge=1)
    base_s: float = Field(ge=0)
    row_s: float = Field(ge=0)
    batches: int = Field(0, ge=0)


class Overhead(Part):
    """Seconds around the core: ``front_s`` until a request is in its lane, ``reply_s`` from its commit to its caller.

    ``spread`` are quantiles of both together, evenly spaced, over their mean: what a single request draws.
    """

    front_s: float = Field(0, ge=0)
    reply_s: float = Field(0, ge=0)
    spread: list[float] = Field(default_factory=lambda: [1.0])


class Contention(Part):
    """How much slower batches ran while ``cores`` were all at work and the service answered so many requests.

    ``stretch`` is the factor. With ``cpus`` known it says what a request costs the host, and so the stretch at other
    rates and with other numbers of cores.
    """

    cores: int = Field(1, ge=1)
    requests_per_s: float = Field(0, ge=0)
    stretch: float = Field(1, ge=1)
    overhead: Overhead = Overhead()


class Limits(Part):
    """Settings of the service that decide what a core claims, and how long its batches are."""

    latency_target_s: float = 0.04
    claim_tokens: int = 4096
    claim_refs: int = 128
    slice_tokens: int = 4096
    slice_items: int = 128
    linger_s: float = 1.0


class Profile(Part):
    """One core and one version."""

    schema_: Annotated[Literal["corelane.profile/1"], Field(alias="schema")] = "corelane.profile/1"
    version: str
    target: str = "cpu"
    dtype: str | None = None
    instance: str | None = Field(None, description="The instance it was measured on.")
    machine: str = ""
    measured_at: str = ""
    flexible_rows: bool = True
    overlaps: bool = Field(False, description="Whether batches leave the CPU free while they run.")
    shapes: list[ShapeTime] = Field(min_length=1)
    tokenize_token_s: float = Field(0, ge=0)
    merge_row_s: float = Field(0, ge=0)
    exchange_s: float = Field(0, ge=0, description="One trip that commits and claims.")
    exchange_item_s: float = Field(0, ge=0, description="What each item adds to it.")
    wake_s: float = Field(0, ge=0, description="Until an idle core has claimed a question.")
    asleep_s: float = Field(0, ge=0, description="The same where the core slept.")
    noise: float = Field(0, ge=0, description="Coefficient of variation of a batch's time.")
    tokens_ratio: float = Field(1, gt=0, description="Tokens read for each token estimated.")
    cpus: int | None = Field(None, description="CPUs of the host, where workers and all else share them.")
    overhead: Overhead = Overhead()
    contention: Contention = Contention()
    limits: Limits = Limits()
    worker_bytes: int | None = Field(None, description="Memory of one worker's process.")
    device_bytes: int | None = Field(None, description="Memory of the model on its device.")
    guess: str | None = Field(None, description="How the profile was made up, where it was not measured.")

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, without what was worked out from the old ones: pydantic 2.14 copies
        that too.
        """
        copied = super().model_copy(update=update, deep=deep)
        for name in ("ladder", "_times", "table"):
            copied.__dict__.pop(name, None)
        return copied

    @cached_property
    def ladder(self) -> tuple[Bucket, ...]:
        """Return the buckets by which windows wait; they grow in length."""
        return tallest(self._times)

    @cached_property
    def _times(self) -> Mapping[Bucket, ShapeTime]:
        return {Bucket(length=shape.length, rows=shape.rows): shape for shape in self.shapes}

    @cached_property
    def table(self) -> PassTable:
        """Return the times by which a core chooses; the trip between two batches is part of them."""
        if not self.flexible_rows:
            beside_s = 0.0 if self.overlaps else self.exchange_s
            return PassTable.of_shapes({each: shape.base_s for each, shape in self._times.items()}, beside_s)
        return PassTable(
            {each: [self.exchange_s + self.batch_s(each, n + 1) for n in range(each.rows)] for each in self.ladder},
            token_s=min(shape.row_s / shape.length for shape in self.shapes),
        )

    def batch_s(self, bucket: Bucket, rows: int) -> float:
        """Return the seconds of a batch of so many rows on a core that is not disturbed."""
        shape = self._times[self.shape(bucket, rows)]
        return shape.base_s + shape.row_s * (rows if self.flexible_rows else shape.rows)

    @property
    def chooses(self) -> bool:
        """Return whether fewer rows may take less time."""
        return self.flexible_rows or len(self.ladder) < len(self.shapes)

    def shape(self, bucket: Bucket, rows: int) -> Bucket:
        """Return the shape that so many windows of a bucket run in."""
        return self.table.shape(bucket, rows) if self.chooses and not self.flexible_rows else bucket

    @property
    def request_cpu_s(self) -> float:
        """Return the CPU seconds that a request costs the host outside the cores' batches; 0 where that is unknown."""
        seen = self.contention
        if self.cpus is None or seen.requests_per_s <= 0 or seen.stretch <= 1:
            return 0.0
        return max(0.0, self.cpus - seen.cores / seen.stretch) / seen.requests_per_s

    def stretch(self, at_work: int, requests_per_s: float, hosts: int = 1) -> float:
        """Return how much longer a batch takes while ``at_work`` cores are at work, itself included."""
        if self.cpus is None:
            return 1.0
        cpus = hosts * self.cpus
        return max(1.0, at_work / max(0.1 * cpus, cpus - requests_per_s * self.request_cpu_s))

    def hosts(self, cores: int) -> int:
        """Return how many hosts such as the measured one run so many workers, one on each of their CPUs."""
        return 1 if self.cpus is None else math.ceil(cores / self.cpus)

    def longest(self) -> int:
        """Return the length of the longest bucket."""
        return self.ladder[-1].length

    def scaled(self, ratio: float, *, instance: str, guess: str) -> "Profile":
        """Return a profile whose batches take ``ratio`` times as long, marked as a guess."""
        shapes = [
            shape.model_copy(update={"base_s": ratio * shape.base_s, "row_s": ratio * shape.row_s, "batches": 0})
            for shape in self.shapes
        ]
        return self.model_copy(update={"shapes": shapes, "instance": instance, "guess": guess})


def draw(overhead: Overhead, share: float) -> float:
    """Return the factor of a request's overhead at a place of its spread, from 0 to 1."""
    last = len(overhead.spread) - 1
    return overhead.spread[min(last, int(share * (last + 1)))]


def fill_ladder(measured: Mapping[Bucket, ShapeTime], ladder: list[Bucket]) -> list[ShapeTime]:
    """Return the times of all buckets: those that were not measured follow from the nearest ones, by length; where rows
    are fixed by size.
    """
    known = sorted(measured)
    if not known:
        raise InvalidInput("no batch was measured; let the calibrating load run longer")
    return [measured.get(bucket) or _between(bucket, known, measured) for bucket in sorted(ladder)]


def _between(bucket: Bucket, known: list[Bucket], measured: Mapping[Bucket, ShapeTime]) -> ShapeTime:
    if not any(shape.row_s for shape in measured.values()):
        near = min(known, key=lambda each: abs(each.places - bucket.places))
        base_s = measured[near].base_s * bucket.places / near.places
        return ShapeTime(rows=bucket.rows, length=bucket.length, base_s=base_s, row_s=0)
    at = bisect_left([each.length for each in known], bucket.length)
    low, high = measured[known[max(0, at - 1)]], measured[known[min(len(known) - 1, at)]]
    if at in (0, len(known)):
        ratio = bucket.length / low.length
        base_s, row_s = low.base_s, low.row_s * ratio
    else:
        share = (bucket.length - low.length) / (high.length - low.length)
        base_s = low.base_s + share * (high.base_s - low.base_s)
        row_s = low.row_s + share * (high.row_s - low.row_s)
    return ShapeTime(rows=bucket.rows, length=bucket.length, base_s=base_s, row_s=row_s)


def load_profile(path: Path) -> Profile:
    """Read a saved profile; raise InvalidInput that says what is wrong with it."""
    try:
        return Profile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"the profile {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{path} is no profile of a core: {where}: {first['msg']}") from None


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile as JSON."""
    path.write_text(profile.model_dump_json(indent=2, by_alias=True) + "\n")
