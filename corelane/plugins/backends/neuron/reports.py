"""Reports of a core by ``neuron-monitor``, which runs once per host, or container.

The worker that holds a lock file runs it and writes its reports to a file beside the lock, which all workers read. When
that worker ends, the kernel frees the lock and another worker takes over. Figures that cannot be read are left out.
"""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import orjson

from corelane.engine.backends.plugin import CoreDevice
from corelane.errors import SetupError
from corelane.log import get_logger
from corelane.plugins.backends.neuron.devices import TOOLS, find_tool, parse_cores
from corelane.plugins.backends.neuron.monitor import CONFIG, PERIOD_S, MonitorTotals, figures

log = get_logger(__name__)

#: An older report is ignored, in seconds.
STALE_S = 5 * PERIOD_S

#: Pause before the lock is tried again, and before a tool that ended is started again, in seconds.
AGAIN_S = 5.0

#: Starts the tool so that it ends with this process: the kernel kills it, however this process ends.
LAUNCH = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)}); os.execv(sys.argv[1], sys.argv[1:])"
)


class NeuronDevice(CoreDevice):
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
