"""Fault points: places where a process kills itself if a chaos run asked for it. Otherwise they do nothing."""

import os
import random
import signal
from collections.abc import Iterable, Mapping

#: Standard error. It is written to directly, as buffered text would be lost.
STDERR = 2


def arm(points: Iterable[str]) -> dict[str, float]:
    """Parse fault points with their probabilities, such as ``submit.accepted:0.1``; raise ValueError."""
    armed = {}
    for text in points:
        point, colon, chance = text.partition(":")
        if not (point and colon and 0 <= float(chance or "nan") <= 1):
            raise ValueError(f"{text!r} is not a fault point; write name:probability, as in submit.accepted:0.1")
        armed[point] = float(chance)
    return armed


def reach(point: str, armed: Mapping[str, float]) -> None:
    """Kill this process with the probability that is set for ``point``. SIGKILL is used, so nothing is cleaned up."""
    if armed and random.random() < armed.get(point, 0.0):
        os.write(STDERR, f"fault point {point}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
