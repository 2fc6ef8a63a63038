"""Which connections belong to which processes, from /proc."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes below a process, in no order."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *descendants(child)]
    return found


def ports_of(pids: Iterable[int]) -> set[int]:
    """Return the local ports of the TCP connections that these processes hold."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(link.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes}
