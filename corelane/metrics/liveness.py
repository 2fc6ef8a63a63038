"""Liveness files: one for each worker, keeper and webhook sender, renewed every second, for health checks.

A check does not need Redis, as workers need not be restarted during an outage of Redis. It imports only the standard
library. Times are of the monotonic clock, which all processes of a host share.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

#: A file older than this is ignored, in seconds. A process that ended is replaced sooner, even with torch to import.
FRESH_S = 60.0

#: States in which a core serves. A process with loops is ``running``.
SERVING = frozenset({"idle", "busy", "running"})

#: The state of a core that waits for an operator. A new process would not help.
OUT_OF_SERVICE = "out_of_service"

#: Most characters that are stored of a reason.
MOST_REASON_CHARS = 400


class HealthProbe(StrEnum):
    """What health checks ask."""

    STARTUP = "startup"
    READY = "ready"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a process noted last: its name, state, reason and time."""

    part: str
    state: str
    reason: str = ""
    at_s: float = 0.0


class LivenessFile:
    """The file of one process. If there is no folder, nothing is written."""

    def __init__(self, folder: Path | None, part: str) -> None:
        self._part = part
        self._path = None if folder is None else folder / f"{part.replace('/', '.')}.json"

    def write(self, state: str, reason: str = "") -> None:
        """Write the state. If there is no folder, or it cannot be written, do nothing: checks then find no file."""
        if self._path is None:
            return
        liveness = Liveness(self._part, state, reason[:MOST_REASON_CHARS], time.monotonic())
        beside = self._path.with_suffix(".new")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(asdict(liveness)))
            beside.replace(self._path)

    def clear(self) -> None:
        """Remove the file, as a process that ended as asked must not be reported."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def read_liveness(folder: Path) -> list[Liveness]:
    """Return the notes of all processes in a folder; files that cannot be read are left out."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError, TypeError):
            found.append(Liveness(**json.loads(path.read_text())))
    return found


def judge(probe: HealthProbe, found: Sequence[Liveness], now_s: float) -> str | None:
    """Return what is wrong, or None; ``now_s`` is the monotonic clock.

    A part that waits for its core, or loads, is alive, but has not started and is not ready. A core that is out of
    service counts as started, so that it is not restarted in vain, but is not ready.
    """
    if not found:
        return "there is no sign of life yet"
    for each in found:
        age_s = now_s - each.at_s
        # A file from before a restart of the host has a time in the future.
        if not 0 <= age_s <= FRESH_S:
            return f"{each.part} has given no sign of life for a minute"
        has_started = each.state in SERVING or each.state == OUT_OF_SERVICE
        if (probe is HealthProbe.STARTUP and not has_started) or (
            probe is HealthProbe.READY and each.state not in SERVING
        ):
            return f"{each.part} is {each.state}" + (f": {each.reason}" if each.reason else "")
    return None
