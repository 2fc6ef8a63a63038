"""What is due in a run, and when: warm-up, measured part and tail, one after the other without a pause. Pure.

The load of the measured part is as asked. The warm-up runs at the rate it begins with, the tail at the rate it ends
with: so the first and the last measured requests meet a service at work.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from corelane.domain import arrivals
from corelane.domain.arrivals import Arrivals, Due
from corelane.domain.traces import read_trace
from corelane.errors import InvalidInput
from corelane.plugins.lab.schema import Load, Phase


@dataclass(frozen=True, slots=True)
class Shot:
    """One request that is due; times count from the start of the run."""

    number: int
    at_s: float
    phase: Phase
    items: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Phases:
    """When the parts of a run end, in seconds from its start. A closed loop bounded by requests has no end before."""

    measured_s: float
    tail_s: float
    end_s: float

    def phase(self, at_s: float) -> Phase:
        """Return the part that a time belongs to."""
        return "warmup" if at_s < self.measured_s else "measured" if at_s < self.tail_s else "tail"


def arrivals_of(load: Load) -> Arrivals:
    """Return the arrivals of an open loop; raise InvalidInput for a closed one."""
    detail, rate, seed = load.detail, load.rate_per_s or 0.0, load.seed
    burstiness = float(detail.get("burstiness", 0.0))
    match load.kind:
        case "constant" | "poisson" | "gamma":
            given = {"constant": 0.0, "poisson": 1.0}.get(load.kind, burstiness)
            return arrivals.steady(rate, burstiness=given, seed=seed)
        case "ramp":
            return arrivals.ramp(rate, detail["end_per_s"], detail["seconds"], burstiness=burstiness, seed=seed)
        case "stages":
            return arrivals.stages(detail["stages"], burstiness=burstiness, seed=seed)
        case "trace":
            return arrivals.replay(read_trace(Path(detail["path"])), float(detail.get("speed", 1.0)))
        case _:
            raise InvalidInput("a closed loop has no arrivals: each request is sent when the one before it has ended")


class Schedule:
    """Every request of an open loop, and the bounds of its parts."""

    def __init__(
        self, load: Load, *, warmup_s: float, duration_s: float | None, requests: int | None, tail_s: float
    ) -> None:
        self._arrivals = arrivals_of(load)
        self._seed = load.seed
        self._warmup_s = warmup_s
        measured_s = min(duration_s or math.inf, _length_s(self._arrivals, requests))
        if not math.isfinite(measured_s):
            raise InvalidInput("a load that does not end needs a --duration or a number of --requests")
        self.phases = Phases(warmup_s, warmup_s + measured_s, warmup_s + measured_s + tail_s)

    @property
    def most_items(self) -> int:
        """Questions of the largest request that a trace states; 1 without a trace."""
        return max((entry.items for entry in self._arrivals.trace), default=1)

    @property
    def peak_per_s(self) -> float:
        """The highest rate that is asked for."""
        rates = [max(each.start_per_s, each.end_per_s) for each in self._arrivals.segments]
        return max(rates, default=self._arrivals.rate_per_s)

    def shots(self) -> Iterator[Shot]:
        """Iterate over requests in order of time."""
        phases = self.phases
        length_s = phases.tail_s - phases.measured_s
        source = self._arrivals
        before = self._steady(source.first_per_s, phases.measured_s, 1)
        rest = self._steady(source.last_per_s, phases.end_s - phases.tail_s, 2)
        measured = (each for each in _until(source.due(), length_s))
        parts = chain(
            ((each, 0.0) for each in before),
            ((each, phases.measured_s) for each in measured),
            ((each, phases.tail_s) for each in rest),
        )
        for number, (each, shift_s) in enumerate(parts):
            at_s = each.at_s + shift_s
            yield Shot(number, at_s, phases.phase(at_s), each.items, each.tokens)

    def due(self) -> int:
        """Count the requests of the measured part."""
        return sum(1 for _ in _until(self._arrivals.due(), self.phases.tail_s - self.phases.measured_s))

    def _steady(self, rate_per_s: float, seconds: float, draw: int) -> Iterator[Due]:
        if rate_per_s <= 0 or seconds <= 0:
            return iter(())
        burstiness = self._arrivals.burstiness
        return arrivals.steady(rate_per_s, burstiness=burstiness, seed=self._seed + 7919 * draw, seconds=seconds).due()


def _until(due: Iterator[Due], seconds: float) -> Iterator[Due]:
    for each in due:
        if each.at_s >= seconds:
            return
        yield each


def _length_s(source: Arrivals, requests: int | None) -> float:
    """Return how long the measured part is: to its end, or until one more than so many requests would be due."""
    if requests is None:
        # The last request of a trace belongs to it.
        return source.seconds + 1 / max(source.rate_per_s, 1e-9) if source.trace else source.seconds
    times = list(islice(source.times(), requests + 1))
    if len(times) > requests:
        return times[-1]
    return source.seconds + 1 / max(source.rate_per_s, 1e-9) if source.trace else source.seconds
