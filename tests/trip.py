"""Trace which of our own functions a question enters, by the thread that calls them.

A file counts when one of its functions is called, and its lines are those of the functions called: what a reader of the
trip has to read. It turns back when it is entered again on the same stack with another own file between: that is a
callback into code that has not finished. ``send`` and ``receive`` of ASGI layers are such callbacks by their protocol,
so they are left out.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]

OWN = tuple(f"{ROOT / room}/" for room in ("api", "corelane", "workers"))

ASGI_CALLBACKS = {"send", "receive"}

#: Threads beside a trip, by name.
BESIDE = {"heartbeat", "models"}


class Trip:
    """The functions that one trip enters, by their files, and the files that it turns back to."""

    def __init__(self) -> None:
        self.codes: dict[str, list[CodeType]] = {}
        self.turns: list[str] = []

    def __str__(self) -> str:
        lines = []
        for number, (name, codes) in enumerate(self.codes.items(), 1):
            called = " ".join(dict.fromkeys(code.co_name for code in codes))
            lines.append(f"{number:3} {name} ({sum(map(lines_of, outermost(codes)))} lines): {called}")
        return "\n".join(lines + [f"    turns back: {turn}" for turn in self.turns])

    @property
    def files(self) -> list[str]:
        """Return the files entered, in order."""
        return list(self.codes)

    @property
    def lines(self) -> int:
        """Return the lines of the functions entered."""
        return sum(lines_of(code) for codes in self.codes.values() for code in outermost(codes))

    def only_with(self, other: "Trip") -> "Trip":
        """Leave out what the same trip did not enter another time: work beside it that happened to run meanwhile."""
        self.codes = {
            name: those
            for name, codes in self.codes.items()
            if (those := [code for code in codes if code in other.codes.get(name, [])])
        }
        self.turns = [turn for turn in self.turns if turn in other.turns]
        return self

    def enter(self, frame: FrameType) -> None:
        """Note a function of ours that is called."""
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        codes = self.codes.setdefault(name, [])
        if frame.f_code not in codes:
            codes.append(frame.f_code)
        if frame.f_code.co_name in ASGI_CALLBACKS:
            return
        between, below = "", frame.f_back
        while below is not None:
            other = below.f_code.co_filename
            if other.startswith(OWN):
                if below.f_code.co_name in ASGI_CALLBACKS:
                    return
                if other == frame.f_code.co_filename and between:
                    turn = f"{name}:{frame.f_code.co_name} under {between} under {below.f_code.co_name}"
                    if turn not in self.turns:
                        self.turns.append(turn)
                    return
                if other != frame.f_code.co_filename:
                    between = other.removeprefix(f"{ROOT}/")
            below = below.f_back


def lines_of(code: CodeType) -> int:
    """Return how many lines a function has in its file."""
    return span_of(code)[1] - span_of(code)[0] + 1


def span_of(code: CodeType) -> tuple[int, int]:
    """Return the first and the last line of a function, functions inside it included."""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    inside = (span_of(each)[1] for each in code.co_consts if isinstance(each, CodeType))
    return code.co_firstlineno, max([last, *inside])


def outermost(codes: list[CodeType]) -> list[CodeType]:
    """Return functions without those that stand inside another of them."""
    spans = [span_of(code) for code in codes]
    return [
        code
        for code, (first, last) in zip(codes, spans, strict=True)
        if not any(a <= first and last <= b and (a, b) != (first, last) for a, b in spans)
    ]


class Tracer:
    """Follow the threads that start after this was made, and the one that made it; note calls while a trip is open."""

    def __init__(self) -> None:
        self._trips: dict[str, Trip] | None = None
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def close(self) -> None:
        """Follow nothing any more."""
        self._trips = None
        threading.setprofile(None)
        sys.setprofile(None)

    @contextmanager
    def trips(self) -> Iterator[dict[str, Trip]]:
        """Note what each thread enters meanwhile, by its name, less those that send heartbeats."""
        self._trips = trips = dict[str, Trip]()
        try:
            yield trips
        finally:
            self._trips = None

    def _call(self, frame: FrameType, event: str, _: Any) -> None:
        trips = self._trips
        if trips is None or event != "call" or not frame.f_code.co_filename.startswith(OWN):
            return
        name = threading.current_thread().name
        if name not in BESIDE:
            trips.setdefault(name, Trip()).enter(frame)
