"""The forecast of when a job will be done: what is served before it, and how fast. Pure.

Within an owner small jobs go before larger ones, and larger ones share by tokens. So before a job of T tokens ends,
each other larger job of its owner is served at most T. Owners share the cores by tokens too. So every other owner is
served at most as much as the job's owner, which is T plus what goes before the job. Work of lower priority is left out;
one claim in eight begins with it, which the interval covers.

Others submit later, batches are shared, machines slow down. So the interval is based on how long the last jobs of the
same *kind* took. A *residual* is the logarithm of the time that a job took over its forecast time. Redis keeps the last
residuals of each kind (``lua/rates.lua``). The interval is read from places among the sorted residuals, whatever their
distribution (conformal prediction; Vovk, Gammerman and Shafer, 2005). While there are few residuals, the interval is
wide.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from corelane.domain.dispatch import SMALL_TOKENS

#: The shortest forecast time, in seconds: times are shown in milliseconds.
LEAST_S = 0.001

#: Residuals kept of a kind. With this many, and with 19, the ends of the interval need no interpolation.
KEPT = 39

#: Residuals are stored as whole hundredths, in ``RESIDUAL_CHARS`` characters, at most ``MOST``: e^7 is 1,100 times.
HUNDREDTHS, RESIDUAL_CHARS, MOST = 100, 4, 700

#: The part of the jobs that end before an interval, and the part that end after it.
TAIL = 0.05

#: A kind with fewer than ``ENOUGH`` residuals has an interval of ``WIDE`` hundredths to each side of their mean: a
#: factor of 2.5.
ENOUGH, WIDE = round(1 / TAIL) - 1, 92

#: Upper bounds of the classes of forecast time, in seconds; the last class has none.
SECONDS = (0.02, 0.06, 0.2, 0.6, 2.0, 6.0, 20.0, 60.0)

#: Upper bounds of the classes of waiting: the share of tokens that are served before a job's own.
WAITING = (0.1, 0.6)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until a job is done: the expected time, and an interval that is right nine times in ten."""

    expected_s: float
    earliest_s: float
    latest_s: float
    kind: str
    reckoned_s: float


@dataclass(frozen=True, slots=True)
class TimeSpread:
    """Factors on the forecast time of a job: the middle one, and the two that enclose nine jobs in ten."""

    middle: float
    low: float
    high: float


class Residuals:
    """The residuals of all kinds, in hundredths, oldest first."""

    def __init__(self, kept: Mapping[str, Sequence[int]] | None = None) -> None:
        self._kept = dict(kept or {})

    @classmethod
    def decode(cls, kept: Iterable[tuple[bytes, bytes]]) -> "Residuals":
        """Parse the stored residuals by kind; invalid texts are left out."""
        found = {}
        for kind, text in kept:
            with suppress(ValueError):
                places = range(0, len(text), RESIDUAL_CHARS)
                found[kind.decode()] = [int(text[place : place + RESIDUAL_CHARS]) for place in places]
        return cls(found)

    def spread(self, kind: str) -> TimeSpread:
        """Return the spread of a kind."""
        own = sorted(self._kept.get(kind, ()))
        if len(own) >= ENOUGH:
            return _spread(statistics.median(own), _place(own, TAIL), _place(own, 1 - TAIL))
        # As if there had been one more job, which took exactly the forecast time.
        mean = sum(own) / (len(own) + 1)
        return _spread(mean, mean - WIDE, mean + WIDE)


NO_RESIDUALS = Residuals()


@dataclass(frozen=True, slots=True)
class Own:
    """The waiting work of one owner at one priority: small jobs, their tokens, and larger jobs."""

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
        """Return whether it waits among its owner's small jobs."""
        return self.slices == 1 and self.tokens <= SMALL_TOKENS


def tokens_ahead(owed: Mapping[tuple[str, int], int], owner: str, priority: int, size: Size, own: Own) -> int:
    """Estimate the tokens served before a new job ends.

    ``owed`` holds outstanding tokens by owner and priority; ``own`` is what the job's owner has waiting at its
    priority.
    """
    others: dict[str, int] = {}
    for (who, rank), count in owed.items():
        if rank <= priority and who != owner:
            others[who] = others.get(who, 0) + count
    before = sum(count for (who, rank), count in owed.items() if who == owner and rank < priority)
    before += own_ahead(owed.get((owner, priority), 0), size, own)
    return before + sum(min(count, before + size.tokens) for count in others.values())


def own_ahead(owed: int, size: Size, own: Own) -> int:
    """Of an owner's tokens at one priority, estimate how many are served before a new job of the owner ends.

    A job that is claimed completely no longer waits, but still runs. So at least one larger job is always counted.
    """
    rivals = 1 if size.is_small else max(1, own.larger_jobs)
    return min(owed, own.small_tokens + rivals * size.tokens)


def forecast(
    ahead: int, tokens: int, slices: int, speeds: Iterable[float], residuals: Residuals = NO_RESIDUALS
) -> Forecast | None:
    """Forecast when ``tokens`` behind ``ahead`` are answered; None while no core has measured its speed.

    What is ahead runs on all cores; the job itself runs on at most as many as it has slices.
    """
    known = list(speeds)
    if not known:
        return None
    own = tokens / min(1.0, slices / len(known))
    reckoned_s = max(LEAST_S, (ahead + own) / max(1.0, sum(known)))
    kind = kind_of(ahead, own, reckoned_s)
    spread = residuals.spread(kind)
    return Forecast(reckoned_s * spread.middle, reckoned_s * spread.low, reckoned_s * spread.high, kind, reckoned_s)


def kind_of(ahead: int, tokens: float, seconds: float) -> str:
    """Return the kind of a job that waits for ``ahead`` tokens, has ``tokens``, and whose forecast is ``seconds``."""
    return f"{bisect_left(WAITING, ahead / max(1.0, ahead + tokens))}{bisect_left(SECONDS, seconds)}"


def tokens_until(owed: Mapping[tuple[str, int], int], owner: str, tokens: int) -> int:
    """Estimate how many tokens of all owners are answered before ``tokens`` of ``owner`` are answered.

    The owner's work is answered priority by priority. At each priority, other owners get as much as this one.
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


def _place(ordered: Sequence[int], part: float) -> float:
    """Return the value below which this part of the cases falls, interpolated between neighbours."""
    place = part * (len(ordered) + 1) - 1
    low = min(max(0, math.floor(place)), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * min(1.0, max(0.0, place - low))


def _spread(middle: float, low: float, high: float) -> TimeSpread:
    return TimeSpread(*(math.exp(min(MOST, max(-MOST, each)) / HUNDREDTHS) for each in (middle, low, high)))
