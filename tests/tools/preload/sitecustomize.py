"""Runs first in every process of a shaken fleet: its wall clock can be moved while it runs, and its library changed.

The shift of the clock stands in a file of eight bytes that tests write (CHAOS_CLOCK). Where all parts have one
environment, as under `corelane serve`, CHAOS_FOLDER has such a file for each part, and perhaps the points of its next
life (CHAOS_POINTS); and the Redis of `serve` has each write on disk before it answers, and tells of writes.
CHAOS_LIBRARY names another folder of the Lua library: how the audit is shown a product that is broken.
"""

import datetime
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any


def move_clock(path: str) -> None:
    """Add what the file says, in seconds, to everything that tells the time of day."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, 8)
    shift = mmap.mmap(descriptor, 8, prot=mmap.PROT_READ)
    os.close(descriptor)
    real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime

    def shift_s() -> float:
        return float(struct.unpack("d", shift[:8])[0])

    class LooksReal(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real_datetime)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real_datetime)

    class ShiftedDatetime(datetime.datetime, metaclass=LooksReal):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real_datetime.now(tz) + datetime.timedelta(seconds=shift_s())

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=shift_s())

    time.time = lambda: real_time() + shift_s()
    time.time_ns = lambda: real_time_ns() + int(shift_s() * 1e9)
    datetime.datetime = ShiftedDatetime  # type: ignore[misc]


#: Words of a command line that tell a part.
PARTS = {"keeper": "keeper@", "deliveries": "deliveries@", "flower": "flower", "api": "api"}


def part_of(command: list[str]) -> str:
    """Return the part of `serve` that a command line belongs to; empty for all others."""
    if "worker" in command and "--core" in command:
        return f"core{command[command.index('--core') + 1]}"
    for word in command:
        if word.startswith("core") and "@" in word:
            return word.partition("@")[0]
    return next((part for part, mark in PARTS.items() if any(word.startswith(mark) for word in command)), "")


def arm(file: Path) -> None:
    """Take over the fault points that were left for this life, once."""
    try:
        os.environ["CHAOS_POINTS"] = file.read_text()
        file.unlink()
    except FileNotFoundError:
        pass


def keep_writes() -> None:
    """Start Redis as one that loses nothing that was accepted."""
    from corelane.cli import redis_server

    real = redis_server.server_argv
    redis_server.server_argv = lambda *given: [
        *real(*given),
        "--appendfsync",
        "always",
        "--notify-keyspace-events",
        "Kh",
    ]


if "CHAOS_FOLDER" in os.environ and (part := part_of(sys.orig_argv)):
    arm(Path(os.environ["CHAOS_FOLDER"]) / f"{part}.points")
    os.environ["CHAOS_CLOCK"] = f"{os.environ['CHAOS_FOLDER']}/{part}.clock"

if "CHAOS_CLOCK" in os.environ:
    move_clock(os.environ["CHAOS_CLOCK"])  # before anything keeps the real one

if "CHAOS_LIBRARY" in os.environ:
    from corelane.store.link import library

    library.FOLDER = Path(os.environ["CHAOS_LIBRARY"])

if "CHAOS_FOLDER" in os.environ and "serve" in sys.orig_argv:
    keep_writes()

if "CHAOS_POINTS" in os.environ:
    import kill_points  # type: ignore[import-not-found]

    kill_points.arm(os.environ["CHAOS_POINTS"])
