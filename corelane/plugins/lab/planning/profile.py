"""A profile: the measured times of one core for one version, and the costs of a request around it. Pure.

A profile is saved as JSON, so that it can be used for planning on another host. Times are seconds. A batch of a shape
takes ``base_s``, and ``row_s`` for each row in it. If rows are fixed, the whole time is ``base_s``, and a length may
have several shapes.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corelane.errors import InvalidInput


class ProfilePart(BaseModel):
    """A part of a profile. It also reads parts of other versions, since unknown fields are ignored."""

    model_config = ConfigDict(populate_by_name=True)


class ShapeTime(ProfilePart):
    """Seconds of a batch of one shape."""

    rows: int = Field(ge=1)
    length: int = Field(ge=1)
    base_s: float = Field(ge=0)
    row_s: float = Field(ge=0)


class Overhead(ProfilePart):
    """Seconds until a request is in its lane and from its commit on; ``spread``: quantiles of the sum over its mean."""

    front_s: float = Field(0, ge=0)
    reply_s: float = Field(0, ge=0)
    spread: list[float] = Field(default_factory=lambda: [1.0])

    @property
    def mean_s(self) -> float:
        """Return the mean of the sum of both."""
        return self.front_s + self.reply_s

    def quantile_s(self, share: float) -> float:
        """Return the time within which this share of requests stays."""
        return self.mean_s * self.spread[min(len(self.spread) - 1, int(share * len(self.spread)))]

    def towards(self, other: "Overhead", share: float) -> "Overhead":
        """Return a mix of this overhead and ``other``, which has the part ``share`` in it."""
        return Overhead(
            front_s=self.front_s + share * (other.front_s - self.front_s),
            reply_s=self.reply_s + share * (other.reply_s - self.reply_s),
            spread=other.spread if share > 0.5 else self.spread,
        )


class Contention(ProfilePart):
    """How much slower batches ran while all ``cores`` were at work and requests were answered.

    ``stretch`` is the factor. If ``cpus`` is known, it gives the cost of a request to the host, and so the stretch at
    other rates and with other numbers of cores.
    """

    cores: int = Field(1, ge=1)
    requests_per_s: float = Field(0, ge=0)
    stretch: float = Field(1, ge=1)
    overhead: Overhead = Overhead()


class BatchLimits(ProfilePart):
    """Settings of the service that limit a batch and a slice of a job."""

    latency_target_s: float = 0.04
    slice_tokens: int = 4096


class Profile(ProfilePart):
    """One core and one version."""

    schema_: Annotated[Literal["corelane.profile/1"], Field(alias="schema")] = "corelane.profile/1"
    version: str
    target: str = "cpu"
    dtype: str | None = None
    instance: str | None = Field(None, description="The instance it was measured on.")
    measured_at: str = ""
    flexible_rows: bool = True
    shapes: list[ShapeTime] = Field(min_length=1)
    tokenize_token_s: float = Field(0, ge=0)
    merge_row_s: float = Field(0, ge=0)
    exchange_s: float = Field(0, ge=0, description="One trip that commits and claims.")
    exchange_item_s: float = Field(0, ge=0, description="What each item adds to it.")
    wake_s: float = Field(0, ge=0, description="Until an idle core has claimed an item.")
    noise: float = Field(0, ge=0, description="Coefficient of variation of a batch's time.")
    tokens_ratio: float = Field(1, gt=0, description="Tokens read for each token estimated.")
    cpus: int | None = Field(None, description="CPUs of the host, where workers and all else share them.")
    overhead: Overhead = Overhead()
    contention: Contention = Contention()
    limits: BatchLimits = BatchLimits()
    worker_bytes: int | None = Field(None, description="Memory of one worker's process.")
    device_bytes: int | None = Field(None, description="Memory of the model on its device.")
    guess: str | None = Field(None, description="How the profile was made up, where it was not measured.")

    @property
    def longest(self) -> int:
        """The length of the longest shape."""
        return max(shape.length for shape in self.shapes)

    def length_of(self, tokens: int) -> int:
        """Return the length of the shape that a window runs in."""
        return min((shape.length for shape in self.shapes if shape.length >= tokens), default=self.longest)

    def most_rows(self, length: int) -> int:
        """Return the rows of a full batch of a length: no more than the latency target leaves time for."""
        most = max(shape.rows for shape in self.shapes if shape.length == length)
        in_time = (rows for rows in range(most, 1, -1) if self.batch_s(length, rows) <= self.limits.latency_target_s)
        return next(in_time, 1)

    def batch_s(self, length: int, rows: int) -> float:
        """Return the seconds of a batch on an undisturbed core, in the fastest shape that holds it."""
        return min(
            shape.base_s + shape.row_s * (rows if self.flexible_rows else shape.rows)
            for shape in self.shapes
            if shape.length >= length and shape.rows >= rows
        )

    @property
    def request_cpu_s(self) -> float:
        """The CPU seconds of the host for a request, outside the cores' batches; 0 if unknown."""
        seen = self.contention
        if self.cpus is None or seen.requests_per_s <= 0 or seen.stretch <= 1:
            return 0.0
        return max(0.0, self.cpus - seen.cores / seen.stretch) / seen.requests_per_s

    def stretch(self, at_work: float, requests_per_s: float, hosts: int = 1) -> float:
        """Return how much longer a batch takes while ``at_work`` cores, including its own, are at work."""
        if self.cpus is None:
            return 1.0
        cpus = hosts * self.cpus
        return max(1.0, at_work / max(0.1 * cpus, cpus - requests_per_s * self.request_cpu_s))

    def hosts(self, cores: int) -> int:
        """Return how many hosts like the measured one run ``cores`` workers, one on each CPU."""
        return 1 if self.cpus is None else -(-cores // self.cpus)


def load_profile(path: Path) -> Profile:
    """Read a saved profile; raise InvalidInput, with the reason, if it cannot be read."""
    try:
        return Profile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"the profile {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{path} is no profile of a core: {where}: {first['msg']}") from None


def variation(values: Sequence[float]) -> float:
    """Return the coefficient of variation."""
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if mean else 0.0
