"""Several API processes on one address: each has a listening socket of its own, and the kernel spreads callers.

This process holds all the sockets. So no caller is refused while a process that died is replaced: the callers that the
kernel gave to it wait. Everything that processes must know of each other is in Redis.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from corelane.cli.parts import PRESUMED_UP_S, PartHistory, describe_status
from corelane.cli.supervisor import die_with_parent
from corelane.log import get_logger

log = get_logger(__name__)

#: CPUs for each process, and the most processes that are run unasked. A question costs the API a tenth of what it costs
#: a core, so the other CPUs are left to the workers.
CPUS_EACH, MOST_UNASKED = 4, 4

#: Deaths after which a process that was never up is given up: the cause is seldom temporary.
FIRST_TRIES = 2

#: Time between the end of the grace for requests and the kill of a process that does not stop, in seconds.
KILL_AFTER_S = 2.0

#: Where Linux keeps the limit on the CPU time of a container.
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def count_processes(wanted: int | None, cpus: int) -> int:
    """Return how many API processes to run on this number of CPUs."""
    return wanted or min(MOST_UNASKED, max(1, cpus // CPUS_EACH))


def usable_cpus(limit: Path = CPU_MAX) -> int:
    """Return how many CPUs this process may use: those it may run on, and no more than its container is allowed."""
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = limit.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def listen_beside(first: socket.socket, count: int, backlog: int) -> list[socket.socket]:
    """Return ``count`` sockets that listen on the address of the first, which is one of them."""
    sockets = [first]
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for _ in range(count - 1):
        other = socket.socket(first.family)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if first.family == socket.AF_INET6:
            other.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, first.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            )
        other.bind(first.getsockname())
        sockets.append(other)
    for each in sockets:
        each.listen(backlog)
    return sockets


class ApiProcesses:
    """Runs one API process for each socket until it is asked to stop, or one of them is given up."""

    def __init__(self, sockets: Sequence[socket.socket], env: Mapping[str, str], grace_s: float) -> None:
        self._sockets, self._env, self._grace_s = sockets, env, grace_s
        self._over = asyncio.Event()
        self._is_given_up = False

    async def run(self) -> bool:
        """Run them; return False if one was given up."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._over.set)
        await asyncio.gather(*(self._keep(number, each) for number, each in enumerate(self._sockets)))
        return not self._is_given_up

    async def _keep(self, number: int, listening: socket.socket) -> None:
        """Run one process, and run it again whenever it dies."""
        history = PartHistory()
        while not self._over.is_set():
            process = await self._launch(listening)
            history.launched()
            status, lived_s = await self._live(process, history)
            if self._over.is_set():
                return
            history.died(status, lived_s)
            log.error("api_process_died", process=number, how=describe_status(status), back_in_s=history.pause_s)
            if history.is_hopeless(FIRST_TRIES):
                self._is_given_up = True
                self._over.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), history.pause_s)

    async def _launch(self, listening: socket.socket) -> asyncio.subprocess.Process:
        fd = listening.fileno()
        argv = (sys.executable, "-m", "corelane", "api", "--fd", str(fd))
        return await asyncio.create_subprocess_exec(*argv, env=self._env, pass_fds=(fd,), preexec_fn=die_with_parent)

    async def _live(self, process: asyncio.subprocess.Process, history: PartHistory) -> tuple[int, float]:
        """Wait for the end of a process, or have it end when all do; return its exit status and its life in seconds."""
        began = time.monotonic()
        up = asyncio.get_running_loop().call_later(PRESUMED_UP_S, history.came_up)
        ends, over = asyncio.create_task(process.wait()), asyncio.create_task(self._over.wait())
        await asyncio.wait((ends, over), return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        over.cancel()
        if not ends.done():
            await self._stop(process, ends)
        return await ends, time.monotonic() - began

    async def _stop(self, process: asyncio.subprocess.Process, ends: asyncio.Task[int]) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
            # A process that was stopped with SIGSTOP could not obey.
            process.send_signal(signal.SIGCONT)
        await asyncio.wait((ends,), timeout=self._grace_s + KILL_AFTER_S)
        if not ends.done():
            with suppress(ProcessLookupError):
                process.kill()
