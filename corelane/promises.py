"""When a job will be done: what is served before it, and how fast. Pure.

Owners share the cores by tokens, so before a job of T tokens ends, every other owner is served at most as much as its
own owner is: what that owner has waiting already, plus T. Work of lower priority is left out; the eighth of the claims
that begins with it lies within the interval.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Estimates are of whole jobs, and neither routing nor the last batch of a job is free: at least this much, in seconds.
LEAST_S = 0.05


@dataclass(frozen=True, slots=True)
class Speed:
    """Estimated tokens per second of a core that has work: the mean, and the slow and fast ends of its samples."""

    mean: float
    low: float
    high: float

    @classmethod
    def decode(cls, text: str) -> "Speed":
        """Read a speed back from the store."""
        return cls(*map(float, text.split()))

    def encode(self) -> str:
        """The text that stands in the store."""
        return f"{self.mean:.1f} {self.low:.1f} {self.high:.1f}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until a job is done: the expectation, and an interval that holds four in five."""

    expected_s: float
    earliest_s: float
    latest_s: float


def tokens_ahead(owed: Mapping[tuple[str, int], int], owner: str, priority: int, tokens: int) -> int:
    """Tokens served before a new job of ``tokens`` ends; ``owed`` holds outstanding tokens by owner and priority."""
    waiting: dict[str, int] = {}
    for (who, rank), count in owed.items():
        if rank <= priority:
            waiting[who] = waiting.get(who, 0) + count
    own = waiting.pop(owner, 0)
    return own + sum(min(count, own + tokens) for count in waiting.values())


def forecast(ahead: int, tokens: int, slices: int, speeds: Iterable[Speed]) -> Forecast | None:
    """When ``tokens`` behind ``ahead`` will be answered; None while no core has measured its speed.

    What is ahead runs on all cores; the job itself on as many as it has slices.
    """
    known = list(speeds)
    if not known:
        return None
    share = min(1.0, slices / len(known))

    def seconds(speed: float) -> float:
        return max(LEAST_S, (ahead + tokens / share) / max(speed, 1.0))

    return Forecast(
        seconds(sum(speed.mean for speed in known)),
        seconds(sum(speed.high for speed in known)),
        seconds(sum(speed.low for speed in known)),
    )
