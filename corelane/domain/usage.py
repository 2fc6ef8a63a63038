"""Usage: what work took, for a job, for a batch, and for an owner by day. Pure except for the wire models.

Core seconds are the time that cores spent on reading texts, running the model and making results, divided among jobs by
tokens. On CPUs they are CPU time, on devices elapsed time. Idle time is charged to no job.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: Microseconds in a second.
US = 1_000_000

#: What usage can be grouped by.
Group = Literal["day", "month", "key", "model"]


class Usage(BaseModel):
    """The usage of some work."""

    items: int = Field(description="Items that cores answered, failed ones too.")
    tokens: int = Field(description="Tokens that the model read, padding left out.")
    core_s: float = Field(description="Core seconds: its share, by tokens, of batches that it shared.")


class TokenDetails(BaseModel):
    """The details of input tokens that OpenAI's clients expect."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """The details of output tokens that OpenAI's clients expect."""

    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    """The usage of a batch: the fields of OpenAI's API, and Corelane's own. No output tokens are made."""

    input_tokens: int
    input_tokens_details: TokenDetails = Field(default_factory=TokenDetails)
    output_tokens: int = 0
    output_tokens_details: OutputDetails = Field(default_factory=OutputDetails)
    total_tokens: int
    items: int
    core_s: float


class UsageRow(Usage):
    """The usage of one group. A field that usage is not grouped by is null."""

    day: str | None = None
    month: str | None = None
    key: str | None = Field(None, description="The owner of the API keys that the work was for.")
    model: str | None = Field(None, description="The model version; null of a job that was deleted meanwhile, too.")


class UsageReport(BaseModel):
    """Usage from one day to another, both included, by UTC."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    object: Literal["usage"] = "usage"
    from_: str = Field(alias="from", description="The first day.")
    to: str = Field(description="The last day.")
    group_by: list[Group]
    data: list[UsageRow] = Field(description="Groups in order.")
    total: UsageRow = Field(description="The sum.")


@dataclass(slots=True)
class Used:
    """The usage of some work, with core microseconds, as it is stored."""

    items: int = 0
    tokens: int = 0
    core_us: int = 0

    @classmethod
    def decode(cls, text: str) -> "Used":
        """Parse the stored usage of a job, or of a row of a day."""
        return cls(*map(int, text.split(" ")))

    def encode(self) -> str:
        """Return the text that is stored."""
        return f"{self.items} {self.tokens} {self.core_us}"

    def add(self, other: "Used") -> None:
        """Add the usage of other work."""
        self.items += other.items
        self.tokens += other.tokens
        self.core_us += other.core_us

    @property
    def core_s(self) -> float:
        """Return the core seconds."""
        return round(self.core_us / US, 6)

    def shown(self) -> dict[str, Any]:
        """Return the fields of a ``Usage``."""
        return {"items": self.items, "tokens": self.tokens, "core_s": self.core_s}

    def describe_batch(self) -> BatchUsage:
        """Return the usage of a batch."""
        return BatchUsage(input_tokens=self.tokens, total_tokens=self.tokens, items=self.items, core_s=self.core_s)
