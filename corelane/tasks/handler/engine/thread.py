"""The thread on which a handler runs, with a time limit around each call.

A call that takes too long is left behind, and the core's process must end: nothing else stops a thread. If the call
lets no other thread run, the process ends itself a little later, without a word to anybody but its log.
"""

import faulthandler
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from corelane.errors import RuntimeLost

Found = TypeVar("Found")

#: A process that cannot even say that a call took too long ends this many seconds later.
GRACE_S = 5.0


class HandlerThread:
    """One thread that makes calls, in order."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Found], limit_s: float | None = None, setting: str = "") -> Found:
        """Call a function on the thread and return its result, or raise its error; raise RuntimeLost if it hangs.

        The error quotes the ``setting`` that gave the limit.
        """
        future: Future[Found] = Future()

        def make() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        if limit_s is not None and sys.__stderr__ is not None:
            # A process whose standard error is closed has no such watch.
            with suppress(ValueError, OSError):
                faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=sys.__stderr__)
        self._calls.put(make)
        try:
            if wait([future], limit_s).not_done:
                raise RuntimeLost(f"{self._thread.name} ran longer than its `timeout_s` allows{setting}")
        finally:
            faulthandler.cancel_dump_traceback_later()
        return future.result()

    def close(self) -> None:
        """End the thread once its calls are made."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
