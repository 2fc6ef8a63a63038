"""Bootsteps that close gaps of Celery's worker: its child sees a stop, and the end of a child is noticed quickly.

A drain that lingers does not notice a warm shutdown (remote ``shutdown`` sends no signal at all). And the parent checks
for dead children only every five seconds, and replaces them late (https://github.com/celery/celery/issues/9588). Both
are true for Celery 5.7 with billiard 4.3. Celery's pool reports no exit status of a child, and lets the processes
run on that the child has started.
"""

import ctypes
import mmap
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps

#: Seconds between two checks of the child. A dead one is found within 0.7 s, at no measurable cost.
REAP_S = 0.5

#: The option of Linux' ``prctl`` by which a process becomes the parent of what its children leave behind.
SET_CHILD_SUBREAPER = 36


class RaiseStopFlag(bootsteps.StartStopStep):
    """Raises the flag when the worker begins to close, for any reason. The drain ends after its batch."""

    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, worker: Any) -> None:
        """Clear the flag at the start."""
        worker.app.stop_flag[0] = 0

    def close(self, worker: Any) -> None:
        """Raise the stop flag."""
        worker.app.stop_flag[0] = 1

    stop = terminate = close


class ReapChildren(bootsteps.StartStopStep):
    """Replaces a dead child within a second."""

    requires = frozenset({"celery.worker.consumer.tasks:Tasks"})

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Watch the pool while this connection lasts."""
        if hasattr(consumer.pool, "maintain_pool") and consumer.hub is not None:
            follow_ends(consumer.pool._pool, consumer.app.note_end)
            self._timer = consumer.hub.call_repeatedly(REAP_S, consumer.pool.maintain_pool)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002  # the signature is Celery's
        """Stop watching; a reconnect starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def follow_ends(pool: Any, note_end: Callable[[int], object]) -> None:
    """Note the status of each child of a pool that ends, before the next one starts, and end what it leaves behind."""
    if not hasattr(pool, "process_flush_queues") or "process_flush_queues" in vars(pool):
        # A pool without processes, or after a reconnect.
        return
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    flush, others = pool.process_flush_queues, children()

    def process_flush_queues(ended: Any) -> None:
        flush(ended)
        note_end(ended.exitcode)
        while left := children() - others - {process.pid for process in pool._pool}:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    pool.process_flush_queues = process_flush_queues


def children() -> set[int]:
    """Return the children of this process."""
    found = set[int]()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return found


def add_steps(app: Celery) -> None:
    """Add both steps and a stop flag to an app. The flag is one byte that the parent shares with its child.

    The app's ``note_end`` is called with the exit status of each ended child, negative for a signal.
    """
    app.stop_flag = mmap.mmap(-1, 1)
    app.note_end = bool
    app.steps["worker"].add(RaiseStopFlag)
    app.steps["consumer"].add(ReapChildren)
