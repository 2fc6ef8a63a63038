"""Memory of this process, and how much of the machine's it may use."""

import ctypes
import resource
from contextlib import suppress
from pathlib import Path

from corelane.errors import LoadFailed

PAGE_BYTES = resource.getpagesize()

#: Peak memory of a load: the weights twice, as read and as packed, plus a margin for the first passes. Measured with
#: MiniLM, ten buckets: 212 MB for 90 MB of files in fp32, 188 for 45 in bf16, 201 for 59 in int8.
LOAD_COPIES = 2
LOAD_MARGIN_BYTES = 128 * 1000**2

#: Files with a control group's limit, its use, and (in memory.stat) its droppable file cache, for versions 2 and 1. In
#: version 1 the limit is a huge number if there is none.
CGROUP_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def give_back() -> None:
    """Return free memory of this process to the system; without glibc do nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def check_room(version: str, files_bytes: int, left_bytes: int | None) -> None:
    """Raise LoadFailed if a version's files (``files_bytes``) do not fit into ``left_bytes``; None is no limit."""
    needed = LOAD_COPIES * files_bytes + LOAD_MARGIN_BYTES
    if left_bytes is not None and needed > left_bytes:
        raise LoadFailed(
            f"{version} needs {mb(needed)} of memory while it is loaded (twice its files' {mb(files_bytes)}, and "
            f"{mb(LOAD_MARGIN_BYTES)}); {mb(max(0, left_bytes))} are available: unload another version first, raise "
            "the memory limit, or compile it with fewer buckets or in int8; then load it again"
        )


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the free memory of the machine or, if less, of its control groups; None if unknown."""
    left = [room for path, version in _groups(proc, cgroups) if (room := _room(path, version)) is not None]
    if (free := _free(proc / "meminfo")) is not None:
        left.append(free)
    return min(left, default=None)


def _groups(proc: Path, cgroups: Path) -> list[tuple[Path, int]]:
    """Return the control groups that this process is in, with their parents, each with its version."""
    found = []
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        number, controllers, name = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        root, version = (cgroups, 2) if number == "0" else (cgroups / "memory", 1)
        path = root / name.lstrip("/")
        # In a container the path may be one of the host that does not exist here. Then the root is the group itself.
        found += [(each, version) for each in (path, *path.parents) if each.is_relative_to(root)]
    return found


def _room(group: Path, version: int) -> int | None:
    """Return the bytes left below a group's limit; None if it has none."""
    limit_name, used_name, droppable_name = CGROUP_FILES[version]
    try:
        limit = (group / limit_name).read_text().strip()
        used = int((group / used_name).read_text())
        stat = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
        return None if limit == "max" else int(limit) - used + int(stat.get(droppable_name, 0))
    except (OSError, ValueError):
        return None


def _free(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def mb(count: int) -> str:
    """Format a number of bytes in MB."""
    return f"{count / 1000**2:,.0f} MB"
