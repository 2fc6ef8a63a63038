"""Bootsteps every worker needs: a stop flag its child can see, and quick notice of a dead child.

Celery leaves two gaps: a drain that lingers never learns of a warm shutdown (remote ``shutdown`` sends no signal at
all), and the parent looks for dead children only every five seconds.
"""

import mmap
from typing import Any

from celery import Celery, bootsteps

#: How often the parent looks after its child, in seconds; found dead within 0.7 s, at no cost that shows.
REAP_S = 0.5


class StopFlag:
    """One byte shared by parent and forked child: set when the worker must take no more."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Ask for the stop."""
        self._shared[0] = 1

    def clear(self) -> None:
        """Take the wish back; for a worker that starts."""
        self._shared[0] = 0

    def is_set(self) -> bool:
        """Whether to stop after the batch in hand."""
        return self._shared[0] == 1


class RaiseStopFlag(bootsteps.StartStopStep):
    """Sets the flag as the worker begins to close, whoever asked for it."""

    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, worker: Any) -> None:
        """Begin with the flag down."""
        worker.app.stop_flag.clear()

    def close(self, worker: Any) -> None:
        """Raise it: the drain ends after its batch."""
        worker.app.stop_flag.set()

    stop = terminate = close


class ReapChildren(bootsteps.StartStopStep):
    """Replaces a dead child within a second."""

    requires = frozenset({"celery.worker.consumer.tasks:Tasks"})

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Look after the pool as long as this connection lasts."""
        if hasattr(consumer.pool, "maintain_pool") and consumer.hub is not None:
            self._timer = consumer.hub.call_repeatedly(REAP_S, consumer.pool.maintain_pool)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002  # the signature is Celery's
        """Stop looking; a reconnect starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def add_steps(app: Celery) -> None:
    """Give an app its stop flag and both steps."""
    app.stop_flag = StopFlag()
    app.steps["worker"].add(RaiseStopFlag)
    app.steps["consumer"].add(ReapChildren)
