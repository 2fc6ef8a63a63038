"""Run calls in parallel in child processes, one for each CPU that this process may use.

A child is a fork: it has the loaded models, runs them on one thread, and sends back the result. So a call must not
touch a device, nor a library with threads of its own, such as OpenVINO. If a child cannot be started, or dies, its call
is made in this process. The children end with this process.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

#: Most calls at a time: each needs memory for the passes of a large model.
MOST_PLACES = 4

Found = TypeVar("Found")


class Child(Generic[Found]):
    """A call in a child process of its own."""

    def __init__(self, call: Callable[[], Found]) -> None:
        """Start the child; raises OSError if the system cannot start another process."""
        forking = multiprocessing.get_context("fork")
        self._call = call
        self._reading, writing = forking.Pipe(duplex=False)
        self._process = forking.Process(target=_reply, args=(call, writing), daemon=True)
        try:
            self._process.start()
        except OSError:
            self._reading.close()
            raise
        finally:
            writing.close()

    def result(self) -> Found:
        """Wait for the child; raises what the call raised."""
        try:
            found, error = self._reading.recv()
        except (EOFError, OSError):
            return self._call()
        finally:
            self.close()
        if error is not None:
            raise error
        return found

    def close(self) -> None:
        """End the child, whether it is done or not."""
        self._reading.close()
        self._process.terminate()
        self._process.join()


def places() -> int:
    """Return how many calls can run at a time here."""
    return min(MOST_PLACES, len(os.sched_getaffinity(0)))


def run_beside(calls: Sequence[Callable[[], Found]]) -> list[Found]:
    """Make the calls, ``places()`` of them at a time; return their results in order.

    This process makes a share of them. Raises the error of the first call that failed.
    """
    count = max(1, min(places(), len(calls)))
    children: dict[int, Child[list[Found | Exception]]] = {}
    try:
        for place in range(1, count):
            with suppress(OSError):
                children[place] = Child(_share(calls[place::count]))
        shares = [
            children[place].result() if place in children else _share(calls[place::count])() for place in range(count)
        ]
    finally:
        for child in children.values():
            child.close()
    found = []
    for number in range(len(calls)):
        each = shares[number % count][number // count]
        if isinstance(each, Exception):
            raise each
        found.append(each)
    return found


def _share(calls: Sequence[Callable[[], Found]]) -> Callable[[], list[Found | Exception]]:
    """Return a call that makes all of ``calls`` in order. At a failure it stops, and its result ends with the error."""

    def make() -> list[Found | Exception]:
        found: list[Found | Exception] = []
        for call in calls:
            try:
                found.append(call())
            except Exception as error:
                return [*found, error]
        return found

    return make


def _reply(call: Callable[[], object], writing: Connection) -> None:
    """Make a call in the child, and send its result or its error."""
    # Ctrl-C reaches the parent too, which ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    reply: tuple[object, Exception | None]
    try:
        reply = call(), None
    except Exception as error:
        reply = None, error
    writing.send(reply)
