"""The overview: the state of the whole service at once; the format of ``GET /v1/overview``.

The console, ``corelane top`` and clients read it. Every rate is of the whole fleet. Tokens are estimates.
"""

from enum import StrEnum
from typing import Literal

import orjson
from pydantic import BaseModel, Field

from corelane.domain.health_issues import HealthIssue
from corelane.domain.jobs import Priority
from corelane.domain.pauses import Pause, PauseKind


class Sign(StrEnum):
    """Which way the backlog goes."""

    IDLE = "idle"
    DRAINING = "draining"
    GROWING = "growing"
    STALLED = "stalled"
    PAUSED = "paused"


class ForecastInfo(BaseModel):
    """The forecast of when the waiting work will be done, if it will."""

    sign: Sign = Field(
        description="idle, draining, growing (it will not drain), stalled (nothing is answered), or paused (all of it)."
    )
    text: str = Field(description="The same in a sentence, with the time or the reason.")
    open_items: int = Field(0, description="Items of open jobs that are not answered.")
    waiting_tokens: int = Field(0, description="Tokens that wait, those in files included.")
    backlog_s: float = Field(0, description="Time that the cores need for all open work, in seconds.")
    clear_in_s: float | None = Field(None, description="When it is done, with what arrives meanwhile; null if never.")
    items_per_s: float = Field(0, description="Items answered a second, of late.")
    tokens_per_s: float = Field(0, description="Tokens answered a second, of late.")
    arriving_tokens_per_s: float = Field(0, description="Tokens that arrive a second; one large job is no rate.")


class PromiseInfo(BaseModel):
    """The promises that were kept, early or late, since the beginning."""

    kept: int = 0
    early: int = 0
    late: int = 0
    hit_rate: float | None = Field(None, description="Share that ended within the promised interval; null without any.")


class DoneCount(BaseModel):
    """The work done in a stretch of time."""

    items: int = 0
    jobs: int = 0
    failed: int = Field(0, description="Items that failed.")


class DoneInfo(BaseModel):
    """The work done recently."""

    last_minute: DoneCount = Field(default_factory=DoneCount)
    last_hour: DoneCount = Field(default_factory=DoneCount)


class LatencyInfo(BaseModel):
    """The time that recent jobs took, in seconds; null if no job ended."""

    p50_s: float | None = None
    p95_s: float | None = None


class LaneInfo(BaseModel):
    """The waiting work for one version at one priority."""

    version: str
    priority: Priority
    waiting_tokens: int
    oldest_wait_s: float = Field(description="How long its oldest job has been open.")
    backlog_s: float | None = Field(
        description="Time that the cores that hold the version need for it; null if none does, or all of it is paused."
    )


class CoreVersion(BaseModel):
    """One version on one core."""

    version: str
    state: str
    reason: str | None = None


class CoreOverview(BaseModel):
    """One core."""

    name: str
    state: str = Field(description="As in GET /v1/cores.")
    reasons: list[str] = Field(default_factory=list)
    busy: float = Field(0, description="Share of the last heartbeats spent on batches.")
    versions: list[CoreVersion] = Field(default_factory=list)
    memory_bytes: int | None = None
    claimed_tokens: int = Field(0, description="Tokens it has claimed and not answered.")
    items: int = Field(0, description="Items answered since its process started.")
    restarts: int = 0
    device: dict[str, float] = Field(default_factory=dict, description="As in GET /v1/cores.")


class ModelOverview(BaseModel):
    """The work of one version in the last minute."""

    version: str
    arriving_items_per_s: float = Field(0, description="Items submitted a second.")
    items_per_s: float = Field(0, description="Items answered a second, failed ones included.")
    tokens_per_s: float = Field(0, description="Tokens read a second, padding left out.")
    padding: float | None = Field(None, description="Share of padding in what was read; null without any.")
    compute_mean_s: float | None = Field(None, description="Mean time of a forward pass; null without any.")
    compute_p95_s: float | None = Field(None, description="Time that 95 % of forward passes stayed within.")
    core_share: float | None = Field(None, description="Share of all living cores' time that its forward passes took.")
    error_rate: float | None = Field(None, description="Share of its items that failed; null without any.")


class OwnerWork(BaseModel):
    """The open work of one owner."""

    owner: str
    tokens: int = Field(description="Tokens that are not answered, those in files included.")
    jobs: int = Field(description="Open jobs.")
    items: int | None = Field(description="Their items that are not answered; null with more than 200 jobs.")
    oldest_wait_s: float = Field(description="How long the oldest of them has been open.")


class Overview(BaseModel):
    """The state of the whole service."""

    object: Literal["overview"] = "overview"
    at: str = Field(description="When this was read; it is at most a second old.")
    forecast: ForecastInfo
    promises: PromiseInfo = Field(default_factory=PromiseInfo)
    done: DoneInfo = Field(default_factory=DoneInfo)
    latency: LatencyInfo = Field(default_factory=LatencyInfo)
    lanes: list[LaneInfo] = Field(default_factory=list)
    cores: list[CoreOverview] = Field(default_factory=list)
    models: list[ModelOverview] = Field(default_factory=list)
    troubles: list[HealthIssue] = Field(default_factory=list)
    paused: list[Pause] = Field(default_factory=list, description="As in GET /v1/pauses.")
    owners: list[OwnerWork] = Field(
        default_factory=list,
        description="The six owners with the most work, for keys of scope `admin`, where keys are checked.",
    )

    def without_owners(self) -> "Overview":
        """Return the overview for callers who may not see the owners."""
        hidden = {pause.subject for pause in self.paused if pause.kind is PauseKind.OWNER}
        return self.model_copy(
            update={
                "owners": [],
                "paused": [pause for pause in self.paused if pause.subject not in hidden],
                "troubles": [issue for issue in self.troubles if issue.part not in hidden],
            }
        )


def device_figures(text: str) -> dict[str, float]:
    """Parse the figures of a core's device in a heartbeat, by name; errors of all kinds are added up."""
    told = orjson.loads(text or "{}")
    found = {name: told[name] for name in ("utilization", "memory_bytes", "host_vcpu", "runtime_vcpu") if name in told}
    return found | ({"errors": sum(told["errors"].values())} if "errors" in told else {})
