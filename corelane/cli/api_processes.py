"""Several API processes on one address. Each has its own listening socket, and the kernel distributes callers.

This process holds all the sockets. So if a process dies, the callers that the kernel gave to it wait for its
replacement and are not refused. Processes share state through Redis only.
"""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from corelane.cli.supervisor import FleetPart, Level, Supervisor
from corelane.log import get_logger

log = get_logger(__name__)

#: CPUs per process, and the most processes that run if the user gives no number. An item costs the API a tenth of
#: what it costs a core, so the other CPUs are left to the workers.
CPUS_EACH, MOST_UNASKED = 4, 4

#: A process that was never up is given up after it died this often: the cause is seldom temporary.
FIRST_TRIES = 2

#: Time from the end of the grace for requests until a process that does not stop is killed, in seconds.
KILL_AFTER_S = 2.0

#: Where Linux keeps the limit on the CPU time of a container.
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def say_in_log(text: str, level: Level = "info") -> None:
    """Log a sentence of the supervisor; the processes write their own lines."""
    getattr(log, level)("api_processes", detail=text)


def count_processes(wanted: int | None, cpus: int) -> int:
    """Return how many API processes to run on ``cpus`` CPUs."""
    return wanted or min(MOST_UNASKED, max(1, cpus // CPUS_EACH))


def usable_cpus(limit: Path = CPU_MAX) -> int:
    """Return how many CPUs this process may use: its affinity, at most what its container allows."""
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = limit.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def listen_beside(first: socket.socket, count: int, backlog: int) -> list[socket.socket]:
    """Return ``count`` sockets on one address: ``first``, and further ones that listen on its address."""
    sockets = [first]
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for _ in range(count - 1):
        other = socket.socket(first.family)
        copied = [(socket.SOL_SOCKET, socket.SO_REUSEPORT), (socket.IPPROTO_TCP, socket.TCP_NODELAY)]
        if first.family == socket.AF_INET6:
            copied.append((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for level, option in copied:
            other.setsockopt(level, option, first.getsockopt(level, option))
        other.bind(first.getsockname())
        sockets.append(other)
    for each in sockets:
        each.listen(backlog)
    return sockets


async def run_processes(sockets: Sequence[socket.socket], env: Mapping[str, str], grace_s: float) -> bool:
    """Run one API process for each socket until a signal comes; return False if one of them was given up."""
    supervisor = Supervisor(say_in_log)
    supervisor.stop_on_signals()
    for number, each in enumerate(sockets):
        fd = each.fileno()
        process = FleetPart(
            f"process {number}",
            (sys.executable, "-m", "corelane", "api", "--fd", str(fd)),
            env,
            grace_s=grace_s + KILL_AFTER_S,
            first_tries=FIRST_TRIES,
            fds=(fd,),
        )
        await supervisor.start(process)
    await supervisor.wait()
    await supervisor.stop()
    return supervisor.failure is None
