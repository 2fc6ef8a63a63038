"""Arrivals, the times when requests are due: a rate that may change with random gaps, or a trace. Pure.

``burstiness`` is the coefficient of variation of the gaps: 0 for even gaps, 1 for exponential gaps (Poisson), else for
gamma gaps. Arrivals are drawn at one a second, by a seed; then time is stretched so that the rate follows the segments.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corelane.errors import InvalidInput
from corelane.plugins.lab.traces import TraceEntry

#: A stage of `10@60s`: requests a second, and for how long.
STAGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*@\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*")

UNITS_S = {None: 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Segment:
    """A time in which the rate changes evenly from one value to another, in requests a second."""

    seconds: float
    start_per_s: float
    end_per_s: float

    @property
    def count(self) -> float:
        """Return how many requests are expected in this segment."""
        steady = self.start_per_s == self.end_per_s == 0
        return 0.0 if steady else self.seconds * (self.start_per_s + self.end_per_s) / 2

    def time_of(self, count: float) -> float:
        """Return the time in the segment at which ``count`` requests have arrived."""
        if count == 0:
            return 0.0
        slope = (self.end_per_s - self.start_per_s) / self.seconds if math.isfinite(self.seconds) else 0.0
        if abs(slope) < 1e-12:
            return count / self.start_per_s
        root = math.sqrt(max(0.0, self.start_per_s**2 + 2 * slope * count))
        return 2 * count / (self.start_per_s + root)


#: One arrival: its time in seconds since the start, and its items and tokens, if a trace gives them.
Due = tuple[float, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The due times of requests; the last segment may have no end."""

    segments: tuple[Segment, ...] = ()
    burstiness: float = 0.0
    seed: int = 0
    trace: tuple[TraceEntry, ...] = ()
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.burstiness <= 20:
            raise InvalidInput("burstiness, the coefficient of variation of gaps, is between 0 and 20")

    def times(self) -> Iterator[float]:
        """Iterate over due times, in seconds since the start."""
        return (at_s for at_s, _, _ in self.due())

    def due(self) -> Iterator[Due]:
        """Iterate over arrivals in order of time."""
        if self.trace:
            yield from ((entry.at_s / self.speed, entry.items, entry.tokens) for entry in self.trace)
            return
        counts = _unit_arrivals(self.burstiness, random.Random(self.seed))
        count, began_s, passed = next(counts), 0.0, 0.0
        for segment in self.segments:
            ended_s = began_s + segment.seconds
            while count - passed < segment.count:
                # A sum may round up to the end, which is the next segment's.
                yield min(began_s + segment.time_of(count - passed), math.nextafter(ended_s, began_s)), None, None
                count = next(counts)
            began_s = ended_s
            passed += segment.count

    @property
    def seconds(self) -> float:
        """Return how long arrivals continue; infinity if they do not end."""
        if self.trace:
            return self.trace[-1].at_s / self.speed
        return sum(segment.seconds for segment in self.segments)

    @property
    def rate_per_s(self) -> float:
        """The mean rate, in requests a second."""
        if self.trace:
            return len(self.trace) / max(self.seconds, 1e-9)
        if not math.isfinite(self.seconds):
            return self.segments[-1].end_per_s
        return sum(segment.count for segment in self.segments) / self.seconds

    @property
    def first_per_s(self) -> float:
        """The rate at the start."""
        return self.rate_per_s if self.trace else self.segments[0].start_per_s

    @property
    def last_per_s(self) -> float:
        """The rate at the end."""
        return self.rate_per_s if self.trace else self.segments[-1].end_per_s


def _unit_arrivals(burstiness: float, rng: random.Random) -> Iterator[float]:
    """Yield arrivals of rate 1: exact ones begin at 0."""
    at = 0.0
    if burstiness == 0:
        while True:
            yield at
            at += 1.0
    shape = 1 / burstiness**2
    while True:
        at += rng.expovariate(1.0) if burstiness == 1 else rng.gammavariate(shape, 1 / shape)
        yield at


def steady(rate_per_s: float, *, burstiness: float = 0.0, seed: int = 0, seconds: float = math.inf) -> Arrivals:
    """Return arrivals at one rate: exact if ``burstiness`` is 0, Poisson if it is 1."""
    if not 0 < rate_per_s < math.inf:
        raise InvalidInput("a rate is above 0 and has an end; without one a modest rate is chosen")
    return Arrivals((Segment(seconds, rate_per_s, rate_per_s),), burstiness, seed)


def ramp(start_per_s: float, end_per_s: float, seconds: float, *, burstiness: float = 0.0, seed: int = 0) -> Arrivals:
    """Return arrivals whose rate changes evenly from one value to another."""
    if max(start_per_s, end_per_s) <= 0 or min(start_per_s, end_per_s) < 0 or not 0 < seconds < math.inf:
        raise InvalidInput("a ramp goes between two rates that are not negative, in some time")
    return Arrivals((Segment(seconds, start_per_s, end_per_s),), burstiness, seed)


def stages(text: str, *, burstiness: float = 0.0, seed: int = 0) -> Arrivals:
    """Return the arrivals of stages such as `10@60s,50@1m`; raise InvalidInput for other text."""
    found = [STAGE.fullmatch(part) for part in text.split(",")]
    segments = [Segment(float(each[2]) * UNITS_S[each[3]], float(each[1]), float(each[1])) for each in found if each]
    if len(segments) < len(found) or not all(segment.seconds for segment in segments):
        raise InvalidInput(f"{text!r} are not stages such as 10@60s,50@60s: requests a second, for how long")
    if not any(segment.count for segment in segments):
        raise InvalidInput("no stage has any requests")
    return Arrivals(tuple(segments), burstiness, seed)


def replay(entries: Sequence[TraceEntry], speed: float = 1.0) -> Arrivals:
    """Return the arrivals of a trace, ``speed`` times as fast."""
    if not 0 < speed < math.inf:
        raise InvalidInput("a trace is replayed at a speed above 0")
    return Arrivals(trace=tuple(entries), speed=speed)
