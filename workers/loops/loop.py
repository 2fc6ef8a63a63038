"""Loops: the work that a process repeats in threads of its own as long as it lives.

A loop needs no message, and no message can block it: problems of Celery's consumer, its queues or Redis only change the
result of a round. A failed round is followed by the next. A guard checks every loop once a second. If a loop with short
rounds makes no progress, the process ends and another takes its place.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps

from corelane.errors import Unavailable
from corelane.log import Outage, get_logger
from corelane.metrics.liveness import LivenessFile
from corelane.settings import Settings
from corelane.tracing import Tracer

log = get_logger(__name__)

#: Time between two rounds of the keeper's loops, in seconds: a lapsed lease or a lost bell waits that much longer.
SWEEP_S = 1.0

#: The guard checks this often, in seconds.
GUARD_S = 1.0

#: Checks in a row without progress before the process ends. Checks are counted instead of time: a process that was
#: stopped for a while stood still as a whole, and is fine.
STUCK_CHECKS = 60

#: Exit status of a process whose loop stood still: EX_SOFTWARE of sysexits.h.
STUCK_STATUS = 70

#: Pause after a failed round, in seconds: well below the five seconds within which work resumes after a fault.
RETRY_S = 0.5

Round = Callable[[], object]


@dataclass(frozen=True, slots=True)
class LoopTools:
    """The objects that the loops of one process are made with."""

    settings: Settings
    #: The Celery message that rings a core, with a place for the core's queue.
    bell: str
    #: Logs that Redis cannot be reached; the loops of a process share it.
    outage: Outage
    tracer: Tracer | None
    #: Has the loop that feeds large jobs go round now, if this process has it.
    feed: Callable[[], object] = bool


class Loop:
    """One piece of work, round after round, in a thread of its own.

    ``begin`` returns the round, made in that thread; it is called again after an unforeseen error. ``end`` is called
    once after the last round. If the loop ``must_move``, a round takes seconds at most. ``outage`` logs that Redis
    cannot be reached; the loops of a process share it.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Round],
        *,
        pause_s: float,
        outage: Outage,
        must_move: bool = True,
        end: Callable[[], object] = bool,
    ) -> None:
        self.name = name
        self.must_move = must_move
        self.rounds = 0
        self._begin, self._end, self._pause_s, self._outage = begin, end, pause_s, outage
        self._round: Round | None = None
        self.wake = threading.Event()
        #: Set once the loop was asked to stop; long rounds check it.
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let the round in progress be the last."""
        self.over.set()
        self.wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return whether the thread ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self.over.is_set():
            # A connection that died while idle is noticed at its next use, so only the second failure is an outage.
            pause_s = self._pause_s if self._go_round() or self._go_round(is_second=True) else RETRY_S
            self.rounds += 1
            self.wake.wait(pause_s)
            self.wake.clear()
        self._end()

    def _go_round(self, *, is_second: bool = False) -> bool:
        """Run one round; return whether it succeeded. Only the second failure in a row counts as an outage."""
        try:
            if self._round is None:
                self._round = self._begin()
            self._round()
        except Unavailable as error:
            if is_second:
                self._outage.lost(error.detail, self.name)
            return False
        except Exception:  # log it here; the next round must come
            log.exception("round_broke", loop=self.name)
            self._round = None
            return False
        self._outage.served(self.name)
        return True


class Guard:
    """Logs and ends this process if one of its loops makes no progress; renews its liveness file until then."""

    def __init__(
        self, loops: Sequence[Loop], end: Callable[[int], object] = os._exit, liveness: LivenessFile | None = None
    ) -> None:
        self._all, self._liveness = loops, liveness
        self._loops = [loop for loop in loops if loop.must_move]
        self._seen = [-1] * len(self._loops)
        self._still = [0] * len(self._loops)
        self._end = end
        self._over = threading.Event()

    def start(self) -> None:
        """Start checking."""
        threading.Thread(target=self._run, name="guard", daemon=True).start()

    def stop(self) -> None:
        """Stop checking, and remove the liveness file."""
        self._over.set()

    def check(self) -> None:
        """Check every loop once."""
        for place, loop in enumerate(self._loops):
            has_moved, self._seen[place] = self._seen[place] != loop.rounds, loop.rounds
            self._still[place] = 0 if has_moved else self._still[place] + 1
            if self._still[place] >= STUCK_CHECKS:
                log.critical("loop_stands_still", loop=loop.name, rounds=loop.rounds)
                self._end(STUCK_STATUS)

    def note_liveness(self) -> None:
        """Note for health checks that this process lives, and whether each loop has finished one round."""
        if self._liveness is not None:
            self._liveness.write("running" if all(loop.rounds for loop in self._all) else "starting")

    def _run(self) -> None:
        while not self._over.wait(GUARD_S):
            self.check()
            self.note_liveness()
        if self._liveness is not None:
            self._liveness.clear()


#: For each queue, the loops of a process that reads it, and how long they may take to end, in seconds.
LoopsByQueue = Mapping[str, tuple[Callable[[], Sequence[Loop]], float]]


class RunLoops(bootsteps.StartStopStep):
    """Runs the loops for the queues that a worker reads, even while the worker cannot connect."""

    requires = frozenset({"celery.worker.components:Pool"})

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._loops: list[Loop] = []
        self._grace_s = 0.0
        self._guard = Guard([])

    def start(self, worker: Any) -> None:
        """Start all loops."""
        loops_by_queue: LoopsByQueue = worker.app.loops_by_queue
        for queue in worker.app.amqp.queues.consume_from:
            make, grace_s = loops_by_queue.get(queue, (list, 0.0))
            self._loops += make()
            self._grace_s = max(self._grace_s, grace_s)
        for loop in self._loops:
            loop.start()
        # The worker of a core has no loops; its child writes the liveness file.
        liveness = LivenessFile(worker.app.health_dir, worker.hostname) if self._loops else None
        self._guard = Guard(self._loops, liveness=liveness)
        self._guard.start()

    def close(self, worker: Any) -> None:  # noqa: ARG002  # the signature is Celery's
        """Ask all loops to stop."""
        self._guard.stop()
        for loop in self._loops:
            loop.ask_to_stop()

    def stop(self, worker: Any) -> None:
        """Wait for all loops to end."""
        self.close(worker)
        for loop in self._loops:
            if not loop.join(self._grace_s):
                log.warning("loop_left_behind", loop=loop.name)

    terminate = close


def add_loops(app: Celery, loops_by_queue: LoopsByQueue, health_dir: Path | None) -> None:
    """Let workers of this app run loops; they keep liveness files in ``health_dir``."""
    app.loops_by_queue, app.health_dir = loops_by_queue, health_dir
    app.steps["worker"].add(RunLoops)
