"""Processes of a chaos fleet: how they are started, whose clock is moved, and how they are found again."""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis

from corelane.domain.dispatch import Core
from corelane.settings import Settings
from tests.chaos.load import OTHERS
from tests.chaos.server import Raw, die_with_parent

PRELOAD = Path(__file__).parent / "preload"

#: Host part of the cores' names.
HOST = "chaos"

#: So that work is in flight when a fault strikes, the null engine takes its time, and jobs sent as lines are fed in
#: pieces.
SETTINGS = {
    "CORELANE_TARGET": "null",
    "CORELANE_MODEL": "null",
    "CORELANE_MODELS": ",".join(OTHERS),
    "CORELANE_NULL_BATCH_S": "0.1",
    "CORELANE_FEED_TOKENS": "4000",
    "CORELANE_CORE_HOST": HOST,
    "CORELANE_LOG_FORMAT": "json",
}


class Clock:
    """The time of day of a process and its children, as ``preload`` reads it: it can be moved while they run."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(struct.pack("d", 0.0))
        with file.open("r+b") as opened:
            self._shift = mmap.mmap(opened.fileno(), 8)

    def move(self, seconds: float) -> None:
        """Set how far it is off from now on."""
        self._shift[:8] = struct.pack("d", seconds)

    def close(self) -> None:
        """Let go of the file."""
        self._shift.close()


def armed(settings: Settings, point: str) -> dict[str, str]:
    """Return the environment of a process that has these settings and kills itself at a point of ``kill_points``."""
    return settings.environment() | {"PYTHONPATH": environment({})["PYTHONPATH"], "CHAOS_POINTS": f"{point}:1"}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that loads ``preload``, with these settings and no others."""
    path = os.pathsep.join(filter(None, [str(PRELOAD), os.environ.get("PYTHONPATH", "")]))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CORELANE_")}
    return clean | {"PYTHONPATH": path} | dict(settings)


def launch(argv: Sequence[str], env: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, beside its log; it ends with this one."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv,
            env=env,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def child_of(client: Raw, core: Core | None, parent: int) -> int | None:
    """Return the process that serves a core under a worker, if it is up."""
    try:
        with client as raw:
            state, pid = raw.hmget(f"cl:core:{core}", "state", "pid")
    except redis.RedisError:
        return None
    if state not in ("idle", "busy") or pid is None or parent_of(int(pid)) != parent:
        return None
    return int(pid)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process, or None if there is no such process (any more)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = status.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(parent)


def kill_all_with(setting: str) -> None:
    """Kill every process that has ``NAME=value`` in its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def made(folder: Path) -> Path:
    """Create a folder and return it."""
    folder.mkdir(parents=True)
    return folder
