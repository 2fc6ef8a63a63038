"""CPU time of a service's processes, by role, from /proc."""

import os
from contextlib import suppress
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: Words of a command line that tell a role, looked for in this order.
ROLES = (
    ("redis", ("redis-server", "valkey-server")),
    ("flower", ("flower",)),
    ("keeper", ("keeper@",)),
    ("worker", ("core.",)),
    ("api", (" api",)),
)


def children(pid: int) -> list[int]:
    """Return the processes that a process started, from any of its threads."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    return [found for child in children(pid) for found in (child, *descendants(child))]


def role_of(pid: int) -> str:
    """Return the role of one process of a service; "other" if it is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return next((role for role, words in ROLES if any(word in command for word in words)), "other")


def cpu_seconds(pids: list[int]) -> dict[str, float]:
    """User and system time so far, by role; without processes that are gone."""
    used: dict[str, float] = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        role = role_of(pid)
        used[role] = used.get(role, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return used
