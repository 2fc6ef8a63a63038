"""Fault points: places where a process kills itself, if a chaos run asked for it. Everywhere else they do nothing.

Code that must survive a death at one place says so by ``reach("submit.accepted", settings.armed_faults)``. An empty
mapping costs one test of it.
"""

import os
import random
import signal
from collections.abc import Mapping

#: Standard error; written to directly, as nothing buffered outlives the kill.
STDERR = 2


def reach(point: str, armed: Mapping[str, float]) -> None:
    """Kill this process here and now, as often as ``point`` is armed for; SIGKILL, so nothing is cleaned up."""
    if armed and random.random() < armed.get(point, 0.0):
        os.write(STDERR, f"fault point {point}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
