"""Vital signs of a core: its work, how busy it is and how fast. The drain writes them, the heartbeat reads them."""

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from corelane.domain.dispatch import Core
from corelane.domain.forecast import Speed
from corelane.engine.runner import Runner
from corelane.engine.task import Work
from corelane.metrics.definitions import CORE_COUNTERS
from workers.core.device import tree_bytes
from workers.core.namesake import read_boot
from workers.core.timing import ItemCosts

#: The busy ratio is taken over this many heartbeats.
BUSY_BEATS = 10

#: Rounds kept for the next heartbeat: more than any core does between two, and a bound should none come.
MOST_ROUNDS = 100_000

#: Reports of what items cost that are kept for the next heartbeat.
MOST_COSTS = 10_000

#: A speed sample is taken once the core has worked this long since the last one and answered something, in seconds.
SAMPLE_S = 0.5

#: Samples that count: the last half minute of work.
SAMPLES = 60


@dataclass(slots=True)
class SpeedSample:
    """Tokens answered, and seconds of work that it took."""

    tokens: int = 0
    seconds: float = 0.0


class Vitals:
    """Batches and their time, the core's speed, and the work of all runners it ever had.

    A core that is given less than it asks for runs small batches, and on a device these take as long as full ones. So
    speed samples of a core with enough to do are kept apart, and the others count only while there are none.
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
        #: could claim; each heartbeat reads the rounds since the last one.
        self.worked: deque[tuple[int, float, bool]] = deque(maxlen=MOST_ROUNDS)
        #: What answered items cost; each heartbeat takes what came since the last one.
        self.costs: deque[ItemCosts] = deque(maxlen=MOST_COSTS)
        #: The work of all runners, those that left included: a core's counters only grow.
        self._work: dict[int, Work] = {}
        self._beats: deque[tuple[float, float]] = deque(maxlen=BUSY_BEATS)
        self._counting = {True: SpeedSample(), False: SpeedSample()}
        self._samples: dict[bool, deque[SpeedSample]] = {full: deque(maxlen=SAMPLES) for full in self._counting}

    def is_stuck(self, longest_s: float) -> bool:
        """Return whether the batch in progress takes longer than it may."""
        since = self.running_since
        return since is not None and time.monotonic() - since > longest_s

    def speed(self) -> Speed | None:
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
        rates = sorted(sample.tokens / sample.seconds for sample in samples)
        mean = sum(sample.tokens for sample in samples) / sum(sample.seconds for sample in samples)
        return Speed(mean, min(mean, rates[len(rates) // 20]), max(mean, rates[-1 - len(rates) // 20]))

    @property
    def is_full_speed(self) -> bool:
        """Return whether the speed was measured with enough to do."""
        return bool(self._samples[True])

    def take_costs(self) -> list[tuple[str, str, list[int]]]:
        """Take what items cost since the last call, summed by version and class; what is taken and not sent is lost."""
        sums: dict[tuple[str, str], list[int]] = {}
        while self.costs:
            version, its_class, *added = self.costs.popleft()
            before = sums.get((version, its_class), [0] * len(added))
            sums[version, its_class] = [a + b for a, b in zip(before, added, strict=True)]
        return [(version, its_class, each) for (version, its_class), each in sums.items()]

    def fields(self, runners: Iterable[Runner]) -> dict[str, object]:
        """Return the fields of one heartbeat; ``runners`` are those that answer now."""
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
            **{name: sum(getattr(w, name) for w in work) for name in CORE_COUNTERS},
        }

    def _busy_seconds(self) -> float:
        """Return the seconds spent on batches, the one in progress included."""
        since = self.running_since
        return self.busy_s + (time.monotonic() - since if since is not None else 0.0)

    def _busy_ratio(self) -> float:
        now, busy = time.monotonic(), self._busy_seconds()
        self._beats.append((now, busy))
        then, before = self._beats[0]
        return min(1.0, max(0.0, (busy - before) / (now - then))) if now > then else 0.0
