"""Reports of a core's device: how busy it is, its memory, its errors, and use of the host's CPUs.

CPU use is reported for the core's process and for the whole host. On a CPU the device is the core's process, read from
/proc. On Neuron it is ``neuron-monitor``, which runs once per host, or container. The worker that holds a lock file
runs it and writes its reports to a file beside the lock, which all workers read. When that worker ends, the kernel
frees the lock and another worker takes over. On a GPU it is the memory that PyTorch holds.

Nothing here may fail a heartbeat: figures that cannot be read are left out.
"""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.backends.neuron.devices import TOOLS, find_tool, parse_cores
from corelane.engine.backends.neuron.monitor import CONFIG, PERIOD_S, MonitorTotals, figures
from corelane.engine.backends.plugin import HOST_TARGETS
from corelane.errors import SetupError
from corelane.log import get_logger
from corelane.settings import neuron_environment

log = get_logger(__name__)

TICKS = os.sysconf("SC_CLK_TCK")

#: An older report is ignored, in seconds.
STALE_S = 5 * PERIOD_S

#: Pause before the lock is tried again, and before a tool that ended is started again, in seconds.
AGAIN_S = 5.0

#: Starts the tool so that it ends with this process: the kernel kills it, however this process ends.
LAUNCH = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)}); os.execv(sys.argv[1], sys.argv[1:])"
)


class CoreDevice(Protocol):
    """The device of one core."""

    def read(self) -> Mapping[str, Any]:
        """Return ``utilization``, ``host_vcpu``, ``runtime_vcpu``, ``memory_bytes`` and ``errors`` by kind.

        The first three are from 0 to 1. Figures that are not known are left out.
        """
        ...

    def close(self) -> None:
        """Stop reading the device."""
        return


def open_device(target: str, held_bytes: Callable[[], int | None], cpus: int | None = None) -> CoreDevice:
    """Return a target's device; ``held_bytes`` returns its memory, ``cpus`` is the number of CPUs per core."""
    if target in CHIPS:
        return NeuronDevice(neuron_environment())
    return CpuDevice(cpus) if target in HOST_TARGETS else AddedDevice(held_bytes)


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


class NeuronDevice:
    """The Neuron cores of this process, as reported by the host's ``neuron-monitor``."""

    def __init__(self, environment: Mapping[str, str], folder: Path | None = None) -> None:
        """``environment`` has the NEURON_* variables; ``folder`` is shared by the workers of a host."""
        self._tag = environment.get("NEURON_PROCESS_TAG", "")
        try:
            self._cores = parse_cores(environment.get("NEURON_RT_VISIBLE_CORES", ""))
        except SetupError:
            self._cores = ()
        self._folder = folder or Path(tempfile.gettempdir()) / f"corelane-neuron-{os.getuid()}"
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        tool = find_tool("neuron-monitor")
        if tool is None:
            log.info("no_neuron_monitor", advice=f"utilisation and device memory are unknown: install it in {TOOLS}")
            return
        threading.Thread(target=self._watch, args=(tool,), name="neuron-monitor", daemon=True).start()

    def read(self) -> Mapping[str, Any]:
        """Return the figures of this process' cores, if the monitor reported them recently."""
        path = self._folder / "told.json"
        try:
            if time.time() - path.stat().st_mtime > STALE_S:
                return {}
            return figures(path.read_bytes(), self._cores, (self._tag, str(os.getpid())))
        except OSError:
            return {}

    def close(self) -> None:
        """End the tool, if this process runs it."""
        self._closing.set()
        if (process := self._process) is not None:
            process.kill()

    def _watch(self, tool: str) -> None:
        """Run the tool whenever no other worker of this host runs it."""
        while not self._closing.is_set():
            try:
                with self._lock() as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._run(tool)
            except BlockingIOError:
                pass
            except OSError as error:
                log.info("neuron_monitor_failed", reason=str(error))
            except Exception:
                log.exception("neuron_monitor_failed")
            self._closing.wait(AGAIN_S)

    def _lock(self) -> IO[bytes]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to another user")
        return (self._folder / "lock").open("ab")

    def _run(self, tool: str) -> None:
        """Run the tool until it ends; after each report, write the sums to the file."""
        config = self._folder / "config.json"
        config.write_bytes(orjson.dumps(CONFIG))
        argv = [sys.executable, "-I", "-S", "-c", LAUNCH, tool, "-c", str(config)]
        totals = MonitorTotals()
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:  # noqa: S603
            self._process = run
            if self._closing.is_set():
                run.kill()
            for line in run.stdout or ():
                with suppress(ValueError):
                    totals.take(orjson.loads(line))
                    if totals.reports > 1:
                        aside = self._folder / "told.new"
                        aside.write_bytes(totals.encode())
                        aside.rename(self._folder / "told.json")
        self._process = None
        if not self._closing.is_set():
            log.info("neuron_monitor_ended", status=run.returncode, reports=totals.reports)


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
