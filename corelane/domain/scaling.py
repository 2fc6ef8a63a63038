"""The number of cores that there should be, and the hosts that may run them, as the service reports it."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field


@dataclass(frozen=True, slots=True)
class HostRange:
    """A host with an autoscaler: the least and the most cores it may run."""

    name: str
    least: int
    most: int


class ScalingInfo(BaseModel):
    """The cores there are, and those that the work asks for; the format of ``GET /v1/scaling``."""

    object: Literal["scaling"] = "scaling"
    at: str = Field(description="When this was worked out, by the keeper, every two seconds.")
    cores: int = Field(description="Cores that serve, or are about to: those out of service do not count.")
    desired: int = Field(
        description="Cores that there should be: what the work asked for at most in the last CORELANE_SCALE_IN_S, and "
        "at least CORELANE_MIN_CORES."
    )
    asked: int = Field(description="What the work asks for at this moment.")
    running: int = Field(description="Cores at work on something.")
    waiting_tokens: int = Field(description="Tokens that wait, those in files included.")
    claimed_tokens: int = Field(description="Tokens that the cores are at work on.")
    backlog_core_s: float | None = Field(
        description="Time one core would need for all open work, at the measured or remembered speed; null if unknown."
    )
    backlog_s: float | None = Field(
        description="Time these cores need for it; with none the time of one; null if unknown."
    )
    fixed: int = Field(0, description="Cores, of those, on hosts without an autoscaler of Corelane's.")
    stopped: list[str] = Field(default_factory=list, description="Cores that an autoscaler has stopped.")
