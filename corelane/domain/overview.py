"""The overview: the state of the whole service at once; the format of ``GET /v1/overview``.

The console, ``corelane top`` and clients read it. Every rate is of the whole fleet. Tokens are estimates.
"""

import math
from typing import Literal

import orjson
from pydantic import BaseModel, Field

from corelane.domain.conditions import HealthIssue
from corelane.domain.pauses import Pause, PauseKind

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

#: For a longer time ``duration`` says only that it is more than this many days.
LONGEST_DAYS = 100


class WaitingInfo(BaseModel):
    """What waits, and how long the cores need for it."""

    text: str = Field(description="The same in a line.")
    open_items: int = Field(0, description="Items of open jobs that are not final.")
    tokens: int = Field(0, description="Tokens that wait, those in files included.")
    tokens_per_s: float = Field(0, description="Tokens a second that the cores read while they have work.")
    seconds: float | None = Field(
        None, description="The tokens that wait or are at work, without paused ones, by this rate; null without a core."
    )


class DoneCount(BaseModel):
    """The work done in the last minute."""

    items: int = 0
    jobs: int = 0
    failed: int = Field(0, description="Items that failed.")


class LatencyInfo(BaseModel):
    """The time that the jobs of the last minute took, in seconds; null if no job ended."""

    p50_s: float | None = None
    p95_s: float | None = None


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

    @property
    def host(self) -> str:
        """Return the host in the core's name."""
        return self.name.rpartition("/")[0]


class ModelOverview(BaseModel):
    """What waits for one version, and its work in the last minute."""

    version: str
    waiting_tokens: int = Field(0, description="Tokens that wait for it, those in files included.")
    oldest_wait_s: float = Field(0, description="How long the oldest of its waiting jobs has been open.")
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
    waiting: WaitingInfo
    last_minute: DoneCount = Field(default_factory=DoneCount)
    latency: LatencyInfo = Field(default_factory=LatencyInfo)
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


def duration(seconds: float) -> str:
    """Format a time to wait, rounded because it is uncertain: 40 s, 35 min, 2 h 10 min, 3 days."""
    if seconds < 1:
        return "a second"
    if seconds < 10:
        return f"{math.ceil(seconds)} s"
    if seconds < 100:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 100 * MINUTE_S:
        return f"{round(seconds / MINUTE_S)} min"
    if seconds < 10 * HOUR_S:
        minutes = 10 * round(seconds / MINUTE_S / 10)
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    if seconds < 2 * DAY_S:
        return f"{round(seconds / HOUR_S)} h"
    if seconds > LONGEST_DAYS * DAY_S:
        return f"more than {LONGEST_DAYS} days"
    return f"{round(seconds / DAY_S):,} days"
