"""What a core has done and how busy it is, as its heartbeat tells it. Written by the drain, read by the heartbeat."""

import os
import time
from collections import deque
from collections.abc import Iterable

from corelane.domain.dispatch import Core
from corelane.engine.memory import resident_bytes
from corelane.engine.runner import QueryRunner, Work
from corelane.metrics import CORE_COUNTERS

#: The busy ratio is taken over this many heartbeats.
BUSY_BEATS = 10


class Vitals:
    """Batches and their time, and the work of all runners there were."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: When the batch in progress began, by the monotonic clock; None between batches.
        self.running_since: float | None = None
        #: Seconds spent on batches that are over.
        self.busy_s = 0.0
        #: What runners have done, those that left included: a core's counters only grow.
        self._work: dict[int, Work] = {}
        self._beats: deque[tuple[float, float]] = deque(maxlen=BUSY_BEATS)

    def begin(self) -> float:
        """Note that a batch begins; the time, for ``end``."""
        self.running_since = time.monotonic()
        return self.running_since

    def end(self, began: float) -> None:
        """Note that it is over, well or not."""
        self.busy_s += time.monotonic() - began
        self.running_since = None

    def is_stuck(self, longest_s: float) -> bool:
        """Whether the batch in progress takes longer than it may."""
        since = self.running_since
        return since is not None and time.monotonic() - since > longest_s

    def fields(self, runners: Iterable[QueryRunner]) -> dict[str, object]:
        """The fields of one heartbeat; ``runners`` are those that answer now."""
        for runner in runners:
            self._work[id(runner.work)] = runner.work
        work = list(self._work.values())
        return {
            "pid": os.getpid(),
            "node": self._core.node,
            "queue": self._core.queue,
            "cpus": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "memory": resident_bytes(),
            "busy": round(self._busy_ratio(), 3),
            **{name: sum(getattr(w, name) for w in work) for name in CORE_COUNTERS},
        }

    def _busy_ratio(self) -> float:
        since, now = self.running_since, time.monotonic()
        busy = self.busy_s + (now - since if since is not None else 0.0)
        self._beats.append((now, busy))
        then, before = self._beats[0]
        return min(1.0, max(0.0, (busy - before) / (now - then))) if now > then else 0.0
