"""Traced files in a device process: torch-neuron (inf1) needs Python 3.10 or older, and Corelane 3.11 or newer.

The process runs ``device_process.py`` in another interpreter. It gets the cores that this process was given. It always
ends with this process, however that ends. Both map the memory through which a batch is sent and returned. Once the
device process has died, or did not reply in time, nothing can be run: ``DeviceGone`` says that this process must be
replaced too.
"""

import json
import math
import mmap
import os
import subprocess
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import numpy as np

from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.errors import SetupError
from corelane.plugins.backends.neuron import device_process
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.device_process import INPUT_BYTES, NUMBER_BYTES
from corelane.plugins.backends.neuron.errors import DeviceGone
from corelane.plugins.backends.neuron.packages import explain_import

#: Time limits for starting and importing, and for loading a file, in seconds. Both take tens of seconds at most.
START_TIMEOUT_S, LOAD_TIMEOUT_S = 300, 600

#: The runtime ends a pass itself, after NEURON_RT_EXEC_TIMEOUT for each part of it. A process that has not answered
#: after twice that time, plus this many seconds, hangs.
GRACE_S = 10

#: Seconds in which the process must close its device.
GOODBYE_S = 2


class RemoteModules:
    """Loads and runs TorchScript modules in a device process; one caller at a time."""

    def __init__(
        self,
        target: str,
        python: str,
        environment: Mapping[str, str],
        *,
        inherits: bool = True,
        output: IO[bytes] | int = 2,
    ) -> None:
        """Start the process in the given interpreter, and wait until it has its packages; raises SetupError.

        ``environment`` has the variables of the runtime, or all variables of the process if ``inherits`` is False.
        """
        self._pass_timeout_s = 2 * float(environment.get("NEURON_RT_EXEC_TIMEOUT", 30)) + GRACE_S
        self._socket, theirs = Pipe()
        self._descriptor = os.memfd_create("corelane-batch")
        self._memory: mmap.mmap | None = None
        command = [python, device_process.__file__, CHIPS[target].package, str(theirs.fileno()), str(self._descriptor)]
        try:
            # Interrupts from a terminal are for the worker, which finishes its batch first.
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env=None if inherits else environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), self._descriptor),
                start_new_session=True,
            )
        except OSError as error:
            self._socket.close()
            os.close(self._descriptor)
            raise SetupError(
                f"{python} cannot be run ({error.strerror}), and the cores of {target} run in it: use the image of "
                "deploy/inf1.Dockerfile, or make an environment of constraints/inf1.txt with Python 3.9 or 3.10, and "
                "name its python in CORELANE_NEURON_PYTHON"
            ) from None
        finally:
            theirs.close()
        #: Let the process close its device, then end it.
        self.close = weakref.finalize(self, _end, self._process, self._socket, self._descriptor)
        try:
            greeting = self._receive(START_TIMEOUT_S)
        except DeviceGone as error:
            self.close()
            raise SetupError(f"{python} does not run the cores of {target}: {error}") from None
        if "import_error" in greeting:
            self.close()
            raise explain_import(target, greeting["import_error"], greeting["missing"], f"{python} -m pip")

    def load(self, path: Path, cores: int | None) -> int:
        """Load a file. ``cores`` means the first of several cores; None means all."""
        return int(self._ask({"do": "load", "file": str(path), "cores": cores}, LOAD_TIMEOUT_S)["module"])

    def run(self, module: int, batch: WindowBatch) -> Logits:
        """Run one forward pass."""
        (rows, length), tokens = batch.input_ids.shape, batch.input_ids.size
        inputs = np.frombuffer(self._mapped(INPUT_BYTES * tokens), np.int64, 3 * tokens).reshape(3, rows, length)
        inputs[0], inputs[1], inputs[2] = batch.input_ids, batch.attention_mask, batch.token_type_ids
        reply = self._ask({"do": "run", "module": module, "rows": rows, "length": length}, self._pass_timeout_s)
        shapes, offset = [tuple(shape) for shape in reply["shapes"]], INPUT_BYTES * tokens
        memory, outputs = self._mapped(offset + NUMBER_BYTES * sum(map(math.prod, shapes))), []
        for shape in shapes:
            outputs.append(np.frombuffer(memory, np.float32, math.prod(shape), offset).reshape(shape).copy())
            offset += outputs[-1].nbytes
        return tuple(outputs)

    def drop(self, modules: dict[Any, Any]) -> None:
        """Drop the modules, which frees their device memory. If the process is gone, that is free already."""
        with suppress(DeviceGone):
            self._ask({"do": "drop", "modules": list(modules.values())}, LOAD_TIMEOUT_S)
        modules.clear()

    def end(self) -> None:
        """Kill the process and wait until its cores are free."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)

    def _mapped(self, size: int) -> mmap.mmap:
        """Return shared memory of at least this size. It has no name, so it is gone once both processes are."""
        if self._memory is None or len(self._memory) < size:
            os.ftruncate(self._descriptor, max(size, os.fstat(self._descriptor).st_size))
            self._memory = mmap.mmap(self._descriptor, 0)
        return self._memory

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and return its reply; raises RuntimeError with the text of an error there, or DeviceGone."""
        try:
            self._socket.send_bytes(json.dumps(request).encode())
        except OSError:
            raise self._gone() from None
        reply = self._receive(timeout_s)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            if not self._socket.poll(timeout_s):
                self.end()
                raise DeviceGone(f"the device process gave no reply in {timeout_s:g} s")
            return dict(json.loads(self._socket.recv_bytes()))
        except (EOFError, OSError):
            raise self._gone() from None

    def _gone(self) -> DeviceGone:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE_S)
        self.end()
        status = self._process.returncode
        how = f"was killed (signal {-status})" if status is not None and status < 0 else f"ended with status {status}"
        return DeviceGone(f"the device process {how}; its output says more")


def _end(process: "subprocess.Popen[bytes]", socket: Connection, descriptor: int) -> None:
    """Let the process close its device, then end it."""
    socket.close()
    try:
        process.wait(GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
    os.close(descriptor)
