"""What follows after a core's process had to end: a new process at once, later, or never again.

The history is in memory that the worker shares with its children; the pool has one child at a time. A child notes its
error before it ends, and the next child reads it. A child that was killed notes no end, which the next child sees. The
history ends with the worker, so restarting a worker gives its core another chance. The decision is a pure function of
the history.
"""

import mmap
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from corelane.errors import CoreBusy, CoreLost, EngineError

#: Restarts count against a core for this time, in seconds. A core that fails every few minutes is broken; one that
#: fails once a day is not.
RESTART_WINDOW_S = 600

#: Pauses before a core is tried again, in seconds: after recent restarts, and if the core is busy. The first restart is
#: at once, as most errors do not repeat. A busy core is tried for ever, as another process may release it.
RESTART_PAUSES_S = (0, 1, 2, 5, 10)
BUSY_PAUSES_S = (1, 2, 5, 10, 30)

#: Space for a history, in bytes; reasons are cut to fit.
SHARED_BYTES = 16_384
MOST_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class FaultHistory:
    """The faults of a core under this worker; times are of the monotonic clock, in seconds."""

    restarts: int = 0
    recent: tuple[float, ...] = ()
    busy: int = 0
    out: bool = False
    reason: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Whether a process runs: it has begun, and has not noted its end.
    runs: bool = False
    #: How the last process ended, if it was killed.
    killed: str = ""

    @property
    def pause_s(self) -> float:
        """Return how long a new process waits before it uses the core."""
        if self.busy:
            return BUSY_PAUSES_S[min(self.busy, len(BUSY_PAUSES_S)) - 1]
        return RESTART_PAUSES_S[min(len(self.recent), len(RESTART_PAUSES_S)) - 1] if self.recent else 0


def after_fault(history: FaultHistory, error: EngineError, now: float, most_restarts: int) -> FaultHistory:
    """Add one error to the history. Afterwards ``out`` says whether the core takes no more work."""
    history = after_end(history)
    reason = error.detail[:MOST_REASON_CHARS]
    if isinstance(error, CoreLost):
        return replace(history, restarts=history.restarts + 1, out=True, reason=reason)
    if isinstance(error, CoreBusy):
        return replace(history, busy=history.busy + 1, reason=reason)
    recent = (*(at for at in history.recent if now - at < RESTART_WINDOW_S), now)
    environment = {**history.environment, **getattr(error, "environment", {})}
    if len(recent) > most_restarts:
        reason = (
            f"it had to be restarted more than {most_restarts} times in ten minutes, the last time because: {reason}"
        )
        restarts = history.restarts + 1
        return replace(history, restarts=restarts, recent=recent, out=True, reason=reason[:MOST_REASON_CHARS])
    return replace(
        history, restarts=history.restarts + 1, recent=recent, busy=0, reason=reason, environment=environment
    )


def after_start(history: FaultHistory) -> FaultHistory:
    """Return the history once the core is served again."""
    return replace(history, busy=0, reason="")


def after_begin(history: FaultHistory) -> FaultHistory:
    """Note that a process begins. If the last one was killed (it noted no end), count a restart but no fault."""
    return replace(history, restarts=history.restarts + history.runs, runs=True)


def after_end(history: FaultHistory) -> FaultHistory:
    """Note that a process ended regularly."""
    return replace(history, runs=False, killed="")


def ending(status: int) -> str:
    """Return in words how a process ended, from its exit status; a negative status means a signal."""
    if status >= 0:
        watch = ", as if a handler let nothing else run for longer than its `timeout_s`" if status == 1 else ""
        return f"the process exited with status {status}{watch}"
    name = signal.Signals(-status).name
    return f"the process was killed by {name}" + (", as the kernel does if memory runs out" if status == -9 else "")


class FaultRecord:
    """A history shared by a worker and its children; one child at a time writes it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, SHARED_BYTES)
        self.save(FaultHistory())

    def load(self) -> FaultHistory:
        """Return the history as last saved."""
        raw = orjson.loads(self._shared[:].rstrip(b"\0"))
        return FaultHistory(**{**raw, "recent": tuple(raw["recent"])})

    def note_end(self, status: int) -> None:
        """Note the exit status of a process that could not note its end itself. The worker calls this."""
        if (history := self.load()).runs:
            self.save(replace(history, killed=ending(status)))

    def save(self, history: FaultHistory) -> None:
        """Save a history for the next process."""
        content = orjson.dumps(history)
        self._shared[:] = content.ljust(SHARED_BYTES, b"\0")
