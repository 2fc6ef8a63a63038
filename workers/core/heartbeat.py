"""Vital signs of a core: its work, how busy it is and how fast. Written by the drain's thread, read by heartbeats."""

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from corelane.domain.dispatch import Core
from corelane.engine.runner import Runner
from corelane.engine.task import RunnerWork
from corelane.metrics.definitions import WORK_COUNTED
from corelane.store.dispatch import ExchangeRequest
from workers.core.device import tree_bytes
from workers.core.duplicate_host import read_boot
from workers.core.observer import CoreBatch, CoreObserver, Trip

#: The busy ratio is taken over this many heartbeats.
BUSY_BEATS = 10

#: Rounds kept for the next heartbeat: more than a core does between two, and a bound if none comes.
MOST_ROUNDS = 100_000

#: A speed sample is taken after this much work since the last one, in seconds, if something was answered.
SAMPLE_S = 0.5

#: Samples that count: the last half minute of work.
SAMPLES = 60


@dataclass(slots=True)
class SpeedSample:
    """Tokens answered, and the seconds of work that took."""

    tokens: int = 0
    seconds: float = 0.0


class Vitals(CoreObserver):
    """The vital figures of a core: its batches and their time, its speed, and the work of all its runners.

    A core that gets less work than it asks for runs small batches, and on a device these take as long as full ones. So
    speed samples taken with enough work are kept apart. Other samples count only while none of these exist.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._boot = read_boot()
        self._began = time.monotonic()
        #: When the batch in progress began, by the monotonic clock; None between batches.
        self.running_since: float | None = None
        #: Seconds spent on batches that are over.
        self.busy_s = 0.0
        #: Estimated tokens that a round answered, the seconds it took, and whether the core had as much work as it
        #: could claim. Each heartbeat reads the rounds since the last one.
        self.worked: deque[tuple[int, float, bool]] = deque(maxlen=MOST_ROUNDS)
        #: When the round began. A round is a trip to Redis and the batch that follows; None after a batch.
        self._round_since: float | None = None
        #: Whether the last claim filled the room: now, and when the batch in progress began.
        self._is_full = self._was_full = False
        #: The work of all runners, including those that were unloaded, as a core's counters only grow.
        self._work: dict[int, RunnerWork] = {}
        self._beats: deque[tuple[float, float]] = deque(maxlen=BUSY_BEATS)
        self._counting = {True: SpeedSample(), False: SpeedSample()}
        self._samples: dict[bool, deque[SpeedSample]] = {full: deque(maxlen=SAMPLES) for full in self._counting}

    def contributes(self, request: ExchangeRequest) -> None:  # noqa: ARG002  # the signature is the hook's
        """Begin a round with the trip before a batch. A trip during a batch belongs to the batch's round."""
        if self.running_since is None:
            self._round_since = time.monotonic()

    def committed(self, trip: Trip) -> None:
        """Note whether there was enough to claim. Time in which the core waited to be rung does not count as work."""
        request, claim = trip.request, trip.reply.claim
        self._is_full = bool(request.versions) and (claim.tokens if claim is not None else 0) >= request.room.tokens
        if request.wait:
            self._round_since = time.monotonic()

    def batch_started(self, batch: CoreBatch) -> None:  # noqa: ARG002  # the signature is the hook's
        """Begin a batch."""
        self.running_since, self._was_full = time.monotonic(), self._is_full

    def batch_finished(self, batch: CoreBatch) -> None:
        """End a batch, and its round."""
        now = time.monotonic()
        began = now if self.running_since is None else self.running_since
        self.busy_s += now - began
        self.running_since = None
        self.worked.append((batch.answered_tokens, now - (self._round_since or began), self._was_full))
        self._round_since = None

    def rest(self) -> None:
        """End a batch that failed."""
        self.running_since = self._round_since = None

    def is_stuck(self, longest_s: float) -> bool:
        """Return whether the batch in progress takes longer than allowed."""
        since = self.running_since
        return since is not None and time.monotonic() - since > longest_s

    def speed(self) -> float | None:
        """Return the recent speed, or None before the first sample."""
        while self.worked:
            tokens, seconds, full = self.worked.popleft()
            counting = self._counting[full]
            counting.tokens += tokens
            counting.seconds += seconds
            if counting.seconds >= SAMPLE_S and counting.tokens:
                self._samples[full].append(counting)
                self._counting[full] = SpeedSample()
        samples = list(self._samples[True]) or list(self._samples[False])
        if not samples:
            return None
        return sum(sample.tokens for sample in samples) / sum(sample.seconds for sample in samples)

    @property
    def is_full_speed(self) -> bool:
        """Return whether the speed was measured with enough work."""
        return bool(self._samples[True])

    def fields(self, runners: Iterable[Runner]) -> dict[str, object]:
        """Return the fields of one heartbeat; ``runners`` are those that serve now."""
        for runner in runners:
            self._work[id(runner.work)] = runner.work
        work = list(self._work.values())
        return {
            "pid": os.getpid(),
            "boot": self._boot,
            "lived_s": round(time.monotonic() - self._began, 1),
            "node": self._core.node,
            "queue": self._core.queue,
            "cpus": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "memory": tree_bytes(),
            "busy": round(self._busy_ratio(), 3),
            **{name: sum(getattr(w, counted) for w in work) for name, counted in WORK_COUNTED.items()},
        }

    def _busy_ratio(self) -> float:
        now, since = time.monotonic(), self.running_since
        busy = self.busy_s + (now - since if since is not None else 0.0)
        self._beats.append((now, busy))
        then, before = self._beats[0]
        return min(1.0, max(0.0, (busy - before) / (now - then))) if now > then else 0.0
