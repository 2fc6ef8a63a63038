"""When a job will be done: what is served before it, and how fast. Pure.

Within an owner small jobs go before larger ones, and larger ones share by tokens: before a job of T tokens ends, each
larger one of its owner is served at most T. Owners share the cores by tokens too, so every other owner is served at
most as much as its own owner is: what goes first of that owner's, plus T. Work of lower priority is left out; the
eighth of the claims that begins with it lies within the interval.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.dispatch import SMALL_TOKENS

#: Estimates are of whole jobs, and neither routing nor the last batch of a job is free: at least this much, in seconds.
LEAST_S = 0.05

#: The cores are busy in a second in which they answer so much of what they can.
BUSY = 0.5

#: The cores' own speeds count as much as this many seconds of busy cores.
SPEEDS_WEIGH_S = 3.0


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
        """Return the stored text."""
        return f"{self.mean:.1f} {self.low:.1f} {self.high:.1f}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until a job is done: the expectation, and an interval that holds four in five."""

    expected_s: float
    earliest_s: float
    latest_s: float


@dataclass(frozen=True, slots=True)
class Own:
    """What waits of an owner at one priority: small jobs, their tokens, and larger jobs."""

    small_jobs: int = 0
    small_tokens: int = 0
    larger_jobs: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a new job: tokens and slices."""

    tokens: int
    slices: int

    @property
    def is_small(self) -> bool:
        """Whether it waits among its owner's small jobs."""
        return self.slices == 1 and self.tokens <= SMALL_TOKENS


def tokens_ahead(owed: Mapping[tuple[str, int], int], owner: str, priority: int, size: Size, own: Own) -> int:
    """Estimate the tokens served before a new job ends.

    ``owed`` holds outstanding tokens by owner and priority, ``own`` what waits of the job's owner at its priority.
    """
    others: dict[str, int] = {}
    for (who, rank), count in owed.items():
        if rank <= priority and who != owner:
            others[who] = others.get(who, 0) + count
    before = sum(count for (who, rank), count in owed.items() if who == owner and rank < priority)
    before += own_ahead(owed.get((owner, priority), 0), size, own)
    return before + sum(min(count, before + size.tokens) for count in others.values())


def own_ahead(owed: int, size: Size, own: Own) -> int:
    """Of an owner's tokens at one priority, estimate those that are served before a new job of the owner ends.

    A job of which all is claimed already waits no longer, but runs: so one larger job is counted in any case.
    """
    rivals = 1 if size.is_small else max(1, own.larger_jobs)
    return min(owed, own.small_tokens + rivals * size.tokens)


def forecast(ahead: int, tokens: int, slices: int, speeds: Iterable[Speed]) -> Forecast | None:
    """Forecast when ``tokens`` behind ``ahead`` are answered; None while no core has measured its speed.

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


def drain_rate(answered: Sequence[int], speeds: Iterable[Speed]) -> float:
    """Estimate how many tokens a second the cores with work answer while there is enough of it; 0 if nothing is known.

    ``answered`` counts the tokens of the last full seconds, newest first. The newest ones in which the cores were busy
    tell most. Seconds of little work say nothing, and the cores' own speeds stand for them.
    """
    known = sum(speed.mean for speed in speeds)
    busy_from = BUSY * (known or max(answered, default=0))
    busy = list(itertools.takewhile(lambda tokens: tokens >= max(busy_from, 1), answered))
    weight_s = SPEEDS_WEIGH_S if known else 0.0
    return (weight_s * known + sum(busy)) / max(weight_s + len(busy), 1.0)


def tokens_until(owed: Mapping[tuple[str, int], int], owner: str, tokens: int) -> int:
    """Estimate how many tokens of all owners the cores answer before they have answered this many of one owner.

    The owner's work is answered priority by priority. At each, other owners get as much as it does.
    """
    served = 0
    for priority in sorted({rank for _, rank in owed}):
        waiting = {who: count for (who, rank), count in owed.items() if rank == priority}
        own = waiting.pop(owner, 0)
        if tokens <= own:
            return served + tokens + sum(min(count, tokens) for count in waiting.values())
        tokens -= own
        served += own + sum(waiting.values())
    return served
