"""Reports of a core's device: how busy it is, its memory, its errors, and use of the host's CPUs.

CPU use is reported for the core's process and for the whole host. On a CPU the device is the core's process, read from
/proc. A plugin's target has its own device, or else the memory that its backend holds.

Nothing here may fail a heartbeat: figures that cannot be read are left out.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from corelane.engine.backends.plugin import CoreDevice, added_targets

TICKS = os.sysconf("SC_CLK_TCK")


def open_device(target: str, held_bytes: Callable[[], int | None], cpus: int | None = None) -> CoreDevice:
    """Return a target's device; ``held_bytes`` returns its memory, ``cpus`` is the number of CPUs per core."""
    if (added := added_targets().get(target)) is None:
        return CpuDevice(cpus)
    return added.device() or AddedDevice(held_bytes)


class CpuDevice(CoreDevice):
    """The CPUs that this process and its children use: ``cpus`` is their number, by default all that are allowed."""

    def __init__(self, cpus: int | None = None) -> None:
        self._cpus = cpus
        self._before = (time.monotonic(), cpu_seconds(), host_seconds())

    def read(self) -> Mapping[str, Any]:
        """Return shares of CPU time since the last call.

        ``utilization`` is what this process used of its own CPUs. ``host_vcpu`` is what all processes used of all
        CPUs of the host, and ``runtime_vcpu`` what this process used of them.
        """
        before, self._before = self._before, (time.monotonic(), cpu_seconds(), host_seconds())
        passed, used = self._before[0] - before[0], max(0.0, self._before[1] - before[1])
        all_s, idle_s = (now - then for now, then in zip(self._before[2], before[2], strict=True))
        shares = {}
        if passed > 0:
            shares["utilization"] = used / (passed * (self._cpus or len(os.sched_getaffinity(0))))
        if all_s > 0:
            shares |= {"host_vcpu": 1 - idle_s / all_s, "runtime_vcpu": used / all_s}
        return {name: round(min(1.0, max(0.0, share)), 4) for name, share in shares.items()}


class AddedDevice(CoreDevice):
    """A device of a target that a plugin adds."""

    def __init__(self, held_bytes: Callable[[], int | None]) -> None:
        self._held_bytes = held_bytes

    def read(self) -> Mapping[str, Any]:
        """Return the memory that this process holds on the device."""
        held = self._held_bytes()
        return {} if held is None else {"memory_bytes": held}


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children, including those that ended."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in own_processes()) / TICKS


def host_seconds() -> tuple[float, float]:
    """Return the time of all CPUs of the host since its start, and how much of it was idle; zeros if unknown."""
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    return sum(ticks) / TICKS, sum(ticks[3:5]) / TICKS


def own_processes() -> list[int]:
    """Return the ids of this process and all its descendants."""
    found = [os.getpid()]
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def tree_bytes() -> int:
    """Return the memory that this process and its children hold now, in bytes; shared pages count for each."""
    pages = 0
    for pid in own_processes():
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's stat after its name; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
