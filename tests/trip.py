"""Trace which of our own files a call enters, in order, while it runs.

A file counts when one of its functions is called. It turns back when it is entered again on the same stack with another
own file between: that is a callback into code that has not finished. ``send`` and ``receive`` of ASGI layers are such
callbacks by their protocol, so they are left out.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]

OWN = tuple(f"{ROOT / room}/" for room in ("api", "corelane", "workers"))

ASGI_CALLBACKS = {"send", "receive"}

#: Threads beside a trip, by name, and loops of the same thread: what these call is no part of it.
BESIDE = {"heartbeat", "models"}
LOOPS = {(f"{ROOT / name}", "_run") for name in ("corelane/plugins/console/overviews.py", "corelane/store/metrics.py")}


class Trip:
    """The files that one trip enters with the functions called there, and those it turns back to."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.functions: dict[str, list[str]] = {}
        self.turns: list[str] = []

    def __str__(self) -> str:
        lines = [f"{n:3} {name}: {' '.join(self.functions[name])}" for n, name in enumerate(self.files, 1)]
        return "\n".join(lines + [f"    turns back: {turn}" for turn in self.turns])

    def only_with(self, other: "Trip") -> "Trip":
        """Leave out what the same trip did not enter another time: work beside it that happened to run meanwhile."""
        self.files = [name for name in self.files if name in other.files]
        self.turns = [turn for turn in self.turns if turn in other.turns]
        return self

    def enter(self, frame: FrameType) -> None:
        """Note a function of ours that is called."""
        name = frame.f_code.co_filename
        if is_beside(frame):
            return
        if name not in self.files:
            self.files.append(name)
        functions = self.functions.setdefault(name.removeprefix(f"{ROOT}/"), [])
        if frame.f_code.co_name not in functions:
            functions.append(frame.f_code.co_name)
        if frame.f_code.co_name in ASGI_CALLBACKS:
            return
        between, below = "", frame.f_back
        while below is not None:
            other = below.f_code.co_filename
            if other.startswith(OWN):
                if below.f_code.co_name in ASGI_CALLBACKS:
                    return
                if other == name and between:
                    turn = f"{name}:{frame.f_code.co_name} under {between} under {below.f_code.co_name}"
                    if turn not in self.turns:
                        self.turns.append(turn)
                    return
                if other != name:
                    between = other
            below = below.f_back


def is_beside(frame: FrameType) -> bool:
    """Return whether a loop beside the trip made this call."""
    at: FrameType | None = frame
    while at is not None:
        if (at.f_code.co_filename, at.f_code.co_name) in LOOPS:
            return True
        at = at.f_back
    return False


class Tracer:
    """Follow the threads that start after this was made, and the one that made it; note calls while a trip is open."""

    def __init__(self) -> None:
        self._trip: Trip | None = None
        self._follows: Callable[[threading.Thread], bool] = bool
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def close(self) -> None:
        """Follow nothing any more."""
        self._trip = None
        threading.setprofile(None)
        sys.setprofile(None)

    @contextmanager
    def trip(self, *, here: bool) -> Iterator[Trip]:
        """Note what this thread enters meanwhile, or what the others enter, less those that send heartbeats.

        At the end names are relative to the repository.
        """
        me = threading.current_thread()
        self._follows = lambda thread: thread is me if here else thread is not me and thread.name not in BESIDE
        self._trip = trip = Trip()
        try:
            yield trip
        finally:
            self._trip = None
            trip.files = [name.removeprefix(f"{ROOT}/") for name in trip.files]
            trip.turns = [turn.replace(f"{ROOT}/", "") for turn in trip.turns]

    def _call(self, frame: FrameType, event: str, _: Any) -> None:
        trip = self._trip
        if trip is None or event != "call" or not frame.f_code.co_filename.startswith(OWN):
            return
        if self._follows(threading.current_thread()):
            trip.enter(frame)
