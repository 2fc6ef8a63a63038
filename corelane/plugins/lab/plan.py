"""What a run offers, and what it tells while it goes on: plain data that the generator and its processes share."""

from dataclasses import dataclass, field

from corelane.plugins.lab.phases import Schedule
from corelane.plugins.lab.schema import Hearing, Load, Phase, Way
from corelane.plugins.lab.senders import Manner

#: The sender of all of Corelane's ways.
CORELANE_SENDER = "corelane.plugins.lab.ways:CorelaneSender"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run offers, how, and for how long; times in seconds."""

    load: Load
    way: Way = "question"
    hearing: Hearing = "wait"
    items_per_job: int = 1
    warmup_s: float = 5.0
    duration_s: float | None = 30.0
    requests: int | None = None
    #: Load goes on after the measured part until its last request has ended, and no longer than this.
    tail_s: float = 10.0
    #: Chosen from the load if 0.
    processes: int = 0
    timeout_s: float = 60.0
    seed: int = 0
    sender: str = CORELANE_SENDER
    #: Requests under way at most, in all processes: a client with a bound. As many as there are descriptors if None.
    max_in_flight: int | None = None
    poll_s: float = 0.05
    retries_refusals: bool = False

    @property
    def manner(self) -> Manner:
        """How its requests are sent."""
        return Manner(self.way, self.hearing, self.timeout_s, self.poll_s, self.retries_refusals)

    @property
    def items(self) -> int:
        """Questions in a request."""
        return 1 if self.way == "question" else self.items_per_job

    @property
    def is_closed(self) -> bool:
        """Whether each request is sent when the one before it has ended."""
        return self.load.kind == "closed"

    def schedule(self) -> Schedule:
        """Return the requests of an open loop."""
        return Schedule(
            self.load, warmup_s=self.warmup_s, duration_s=self.duration_s, requests=self.requests, tail_s=self.tail_s
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``latencies`` are those of the requests that ended since the time before."""

    phase: Phase
    at_s: float
    measured_from_s: float
    measured_to_s: float | None
    sent: int = 0
    ended: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    in_flight: int = 0
    late_s: float = 0.0
    latencies: list[float] = field(default_factory=list)
