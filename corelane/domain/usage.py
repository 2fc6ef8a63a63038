"""Usage: what work cost, for a job, for a batch, and for an owner by day. Pure except for the wire models.

Core seconds are the time that cores spent on reading texts, running the model and making results, divided among jobs by
tokens. On CPUs they are CPU time, on devices elapsed time. Idle time is not charged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from corelane.domain.prices import NOTHING, Price

#: Microseconds in a second.
US = 1_000_000

#: What usage can be grouped by.
Group = Literal["day", "month", "key", "model"]

#: Digits kept of an amount: a short item costs less than a millionth of a dollar.
AMOUNT_DIGITS = 12


class Cost(BaseModel):
    """The price of core seconds."""

    amount: float
    currency: str
    instance: str | None = Field(None, description="The type of host; null if several did the work.")
    per_core_hour: float = Field(description="The price of a core for an hour; of several the mean by core seconds.")
    as_of: str | None = Field(None, description="The day of that price, if it is known, and the same for all.")

    def shown(self) -> str:
        """Format the amount with enough digits for a reader."""
        digits = 2 if abs(self.amount) >= 100 else 4 if abs(self.amount) >= 0.1 else 8
        return f"{self.amount:,.{digits}f} {self.currency}"


class Usage(BaseModel):
    """The usage of some work. A figure is null if the processes that did the work did not measure it."""

    items: int = Field(description="Items that cores answered, failed ones too.")
    windows: int | None = Field(None, description="Windows that the model read.")
    tokens: int | None = Field(None, description="Tokens of those windows, padding left out.")
    core_s: float = Field(description="Core seconds: its share, by tokens, of batches that it shared.")
    cost: Cost | None = Field(None, description="Null where some work had no price, or another currency.")


class TokenDetails(BaseModel):
    """The details of input tokens that OpenAI's clients expect."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """The details of output tokens that OpenAI's clients expect."""

    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    """The usage of a batch as OpenAI's API has it, and ours. No output tokens are made."""

    input_tokens: int
    input_tokens_details: TokenDetails = Field(default_factory=TokenDetails)
    output_tokens: int = 0
    output_tokens_details: OutputDetails = Field(default_factory=OutputDetails)
    total_tokens: int
    items: int
    windows: int | None = None
    core_s: float
    cost: Cost | None = None


class UsageRow(Usage):
    """The usage of one group. What it is not grouped by is null."""

    day: str | None = None
    month: str | None = None
    key: str | None = Field(None, description="The owner of the API keys that the work was for.")
    model: str | None = Field(None, description="The model version; null of a job that was deleted meanwhile, too.")


class HostUsage(BaseModel):
    """The cores themselves, whatever they did."""

    up_s: float = Field(description="Time that cores lived, summed over cores.")
    busy_s: float = Field(description="Core seconds that the cores counted as work, charged or not.")
    cost: list[Cost] = Field(description="What the cores cost for all the time they lived, by currency.")


class UsageReport(BaseModel):
    """Usage from one day to another, both included, by UTC."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    object: Literal["usage"] = "usage"
    from_: str = Field(alias="from", description="The first day.")
    to: str = Field(description="The last day.")
    group_by: list[Group]
    data: list[UsageRow] = Field(description="Groups in order; one more for each currency.")
    total: list[UsageRow] = Field(description="The sum, by currency.")
    lost: list[UsageRow] | None = Field(
        None, description="Work that was thrown away, charged to nobody; for an admin who asks for all owners."
    )
    host: HostUsage | None = Field(None, description="The cores themselves; for an admin who asks for all owners.")


@dataclass(slots=True)
class Used:
    """The usage of some work, with core microseconds by price; price None stands for cores without a price."""

    items: int = 0
    windows: int = 0
    tokens: int = 0
    core_us: dict[Price | None, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, text: str) -> "Used":
        """Parse the stored usage of a job."""
        counts, *parts = text.split(";")
        items, windows, tokens = map(int, counts.split(" "))
        by_price = (part.partition(" ") for part in parts)
        return cls(items, windows, tokens, {Price.decode(price): int(core_us) for core_us, _, price in by_price})

    def encode(self) -> str:
        """Return the text that is stored."""
        by_price = ((core_us, NOTHING if price is None else price.encode()) for price, core_us in self.core_us.items())
        return f"{self.items} {self.windows} {self.tokens}" + "".join(f";{us} {price}" for us, price in by_price)

    def add(self, other: "Used") -> None:
        """Add the usage of other work."""
        self.items += other.items
        self.windows += other.windows
        self.tokens += other.tokens
        for price, core_us in other.core_us.items():
            self.core_us[price] = self.core_us.get(price, 0) + core_us

    @property
    def core_s(self) -> float:
        """Return all core seconds."""
        return round(sum(self.core_us.values()) / US, 6)

    def shown(self) -> dict[str, Any]:
        """Return the fields of a ``Usage``. If there are several currencies, the cost is left out."""
        cost = cost_of({price: core_us / US for price, core_us in self.core_us.items()})
        return {
            "items": self.items,
            "windows": self.windows,
            "tokens": self.tokens,
            "core_s": self.core_s,
            "cost": None if cost is None else cost.model_dump(),
        }

    def describe_batch(self) -> BatchUsage:
        """Return the usage of a batch."""
        used = self.shown()
        return BatchUsage(input_tokens=self.tokens, total_tokens=used.pop("tokens"), **used)


def cost_of(core_s: Mapping[Price | None, float]) -> Cost | None:
    """Return the cost of core seconds by price; None if a part has no price, or there are several currencies."""
    prices = [price for price in core_s if price is not None]
    if not prices or len(prices) < len(core_s) or len({price.currency for price in prices}) > 1:
        return None
    amount = sum(price.cost(core_s[price]) for price in prices)
    in_all = sum(core_s.values())
    instances, days = {price.instance for price in prices}, {price.as_of for price in prices}
    mean = 3600 * amount / in_all if in_all and len(prices) > 1 else prices[0].per_core_hour
    return Cost(
        amount=round(amount, AMOUNT_DIGITS),
        currency=prices[0].currency,
        instance=instances.pop() if len(instances) == 1 else None,
        per_core_hour=mean,
        as_of=days.pop() if len(days) == 1 else None,
    )
