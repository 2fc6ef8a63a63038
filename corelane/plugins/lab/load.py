"""The load of a run: loads, their schedule, and the messages between the generator and its processes.

A run has a warm-up, a measured part and a tail, without a pause between them. The warm-up runs at the first rate of the
measured part, the tail at its last one. So the first and the last measured requests meet a busy service.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from corelane.errors import InvalidInput
from corelane.plugins.lab import arrivals
from corelane.plugins.lab.arrivals import Arrivals, Due
from corelane.plugins.lab.schema import Hearing, Load, Phase, Request, ResultCheck, Way
from corelane.plugins.lab.senders import Manner, Target
from corelane.plugins.lab.traces import read_trace, trace_hash
from corelane.plugins.lab.workload import Workload

#: The sender for all ways of submitting to Corelane.
CORELANE_SENDER = "corelane.plugins.lab.ways:CorelaneSender"

#: Time between two progress reports of a process, in seconds.
TICK_S = 0.25


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
    """When the measured part and the tail begin, and when the run ends, in seconds; infinity without a time limit."""

    measured_s: float
    tail_s: float
    end_s: float

    def phase(self, at_s: float) -> Phase:
        """Return the part in which a time is."""
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

    def __init__(self, plan: "RunPlan") -> None:
        self._arrivals, self._seed = arrivals_of(plan.load), plan.load.seed
        measured_s = min(plan.duration_s or math.inf, _length_s(self._arrivals, plan.requests))
        if not math.isfinite(measured_s):
            raise InvalidInput("a load that does not end needs a --duration or a number of --requests")
        tail_s = plan.warmup_s + measured_s
        self.phases = Phases(plan.warmup_s, tail_s, tail_s + plan.tail_s)

    @property
    def most_items(self) -> int:
        """Items of the largest request in a trace; 1 without a trace."""
        return max((entry.items for entry in self._arrivals.trace), default=1)

    @property
    def peak_per_s(self) -> float:
        """The highest requested rate."""
        rates = [max(each.start_per_s, each.end_per_s) for each in self._arrivals.segments]
        return max(rates, default=self._arrivals.rate_per_s)

    def shots(self) -> Iterator[Shot]:
        """Iterate over requests in order of time."""
        phases, source = self.phases, self._arrivals
        parts = (
            (0.0, self._steady(source.first_per_s, phases.measured_s, 1)),
            (phases.measured_s, self._measured()),
            (phases.tail_s, self._steady(source.last_per_s, phases.end_s - phases.tail_s, 2)),
        )
        due = chain.from_iterable(((each, shift_s) for each in part) for shift_s, part in parts)
        for number, ((since_s, items, tokens), shift_s) in enumerate(due):
            at_s = since_s + shift_s
            yield Shot(number, at_s, phases.phase(at_s), items, tokens)

    def due(self) -> int:
        """Count the requests of the measured part."""
        return sum(1 for _ in self._measured())

    def _measured(self) -> Iterator[Due]:
        length_s = self.phases.tail_s - self.phases.measured_s
        return takewhile(lambda each: each[0] < length_s, self._arrivals.due())

    def _steady(self, rate_per_s: float, seconds: float, draw: int) -> Iterator[Due]:
        if rate_per_s <= 0 or seconds <= 0:
            return iter(())
        burstiness = self._arrivals.burstiness
        return arrivals.steady(rate_per_s, burstiness=burstiness, seed=self._seed + 7919 * draw, seconds=seconds).due()


def _length_s(source: Arrivals, requests: int | None) -> float:
    """Return how long the measured part is: to the end of arrivals, or until ``requests`` requests are due."""
    times = list(islice(source.times(), requests + 1)) if requests is not None else []
    if requests is not None and len(times) > requests:
        return times[-1]
    # The last request of a trace belongs to it.
    return source.seconds + (1 / max(source.rate_per_s, 1e-9) if source.trace else 0.0)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run: its load, how it is sent, and for how long; times in seconds."""

    load: Load
    way: Way = "item"
    hearing: Hearing = "wait"
    items_per_job: int = 1
    warmup_s: float = 5.0
    duration_s: float | None = 30.0
    requests: int | None = None
    #: Load continues after the measured part until its last request has ended, but not longer than this.
    tail_s: float = 10.0
    #: Number of processes; 0 means that it is chosen from the load.
    processes: int = 0
    timeout_s: float = 60.0
    sender: str = CORELANE_SENDER
    #: Most requests in flight over all processes. None means that only the number of descriptors limits them.
    max_in_flight: int | None = None
    poll_s: float = 0.05
    retries_refusals: bool = False

    @property
    def manner(self) -> Manner:
        """How its requests are sent."""
        return Manner(self.way, self.hearing, self.timeout_s, self.poll_s, self.retries_refusals)

    @property
    def items(self) -> int:
        """Items in a request."""
        return 1 if self.way == "item" else self.items_per_job

    @property
    def is_closed(self) -> bool:
        """Whether each request is sent only when the previous one has ended."""
        return self.load.kind == "closed"

    def schedule(self) -> Schedule:
        """Return the requests of an open loop."""
        return Schedule(self)


@dataclass(slots=True)
class Tick:
    """The progress of a process. ``is_over``: all of its measured requests have been sent and have ended."""

    sent: int = 0
    ended: int = 0
    refused: int = 0
    failed: int = 0
    is_over: bool = False

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return self.sent - self.ended


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a run: its part and time, and the sum of its processes' ticks."""

    phase: Phase
    at_s: float
    total: Tick


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """The task of one process: its share of the requests."""

    target: Target
    workload: Workload
    plan: RunPlan
    phases: Phases
    place: int
    processes: int
    #: Its measured part ends when it is told to stop, even if more requests are due.
    is_endless: bool = False

    @property
    def loops(self) -> int:
        """Number of loops of a closed loop that this process runs."""
        return self.share(self.plan.load.concurrency or 0)

    def share(self, total: int) -> int:
        """Return this process' part of a number."""
        return total // self.processes + (self.place < total % self.processes)


@dataclass(frozen=True, slots=True)
class Done:
    """The results of a process: its requests, its CPU time in the measured part, checked results, held requests."""

    requests: list[Request]
    cpu_s: float
    results: ResultCheck
    held: int


def read_burstiness(kind: str) -> float:
    """Return the coefficient of variation of the gaps for a kind of arrivals; raise InvalidInput."""
    name, _, value = kind.partition(":")
    try:
        return {"constant": 0.0, "poisson": 1.0}[name] if not value else {"gamma": float(value)}[name]
    except (KeyError, ValueError):
        raise InvalidInput(f"--arrivals {kind}: write constant, poisson or gamma:CV, as gamma:3") from None


def steady_load(rate_per_s: float, burstiness: float, seed: int) -> Load:
    """Return the load of one rate; raise InvalidInput for an impossible one."""
    arrivals.steady(rate_per_s, burstiness=burstiness)
    kind: Any = {0.0: "constant", 1.0: "poisson"}.get(burstiness, "gamma")
    return Load(kind=kind, rate_per_s=rate_per_s, seed=seed, detail={"burstiness": burstiness})


def ramp_load(text: str, seconds: float, burstiness: float, seed: int) -> Load:
    """Return the load of a rate that grows, or falls."""
    try:
        start, end = map(float, text.split(".."))
    except ValueError:
        raise InvalidInput(f"--ramp {text}: write the first and the last rate, as 5..50") from None
    arrivals.ramp(start, end, seconds)
    detail = {"end_per_s": end, "seconds": seconds, "burstiness": burstiness}
    return Load(kind="ramp", rate_per_s=start, seed=seed, detail=detail)


def stages_load(text: str, burstiness: float, seed: int) -> Load:
    """Return the load of successive rates."""
    rate = arrivals.stages(text).rate_per_s
    return Load(kind="stages", rate_per_s=rate, seed=seed, detail={"stages": text, "burstiness": burstiness})


def trace_load(path: Path, speed: float) -> Load:
    """Return the load of a trace."""
    entries = read_trace(path)
    detail = {"path": str(path), "speed": speed, "hash": trace_hash(entries), "entries": len(entries)}
    return Load(kind="trace", rate_per_s=arrivals.replay(entries, speed).rate_per_s, detail=detail)
