"""Run traced files on cores of inf1: a script for the Python that has torch-neuron, 3.10 at most.

It needs torch and torch_neuron, nothing of Corelane, and the syntax of Python 3.8. ``remote.py`` starts it for the
cores that NEURON_RT_VISIBLE_CORES names, with three file descriptors:

    standard input    a pipe that closes when the worker is gone, which ends this process whatever it does
    SOCKET            requests and replies, JSON in the frames of multiprocessing's Connection
    MEMORY            the arrays of one batch: three of int64 tokens, then the fp32 outputs, one after the other

    device_process.py PACKAGE SOCKET MEMORY

Each request has one reply. It is ``{}``, or has the ``shapes`` of a run's outputs, or is ``{"error": TEXT}`` with the
error's text from the package.
"""

from __future__ import annotations

import fcntl
import gc
import json
import mmap
import os
import select
import signal
import sys
import warnings
from contextlib import nullcontext
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

#: Bytes of a batch's inputs for each token: three int64. A number of an output has four.
INPUT_BYTES, NUMBER_BYTES = 24, 4

#: torch_neuron's warning when it runs a model without a device: the output has the right shape and no content.
NOT_CALCULATED = r"(?s).*NOT CALCULATED"


class LoadedModules:
    """Loads traced files on the cores of this process and runs them."""

    def __init__(self, package: Any, torch: Any, memory: int) -> None:
        self._package = package
        self._torch = torch
        self._descriptor = memory
        self._memory: Any = None
        self._loaded: dict[int, Any] = {}
        self._count = 0

    def reply_to(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request says and return the reply."""
        if request["do"] == "load":
            return {"module": self.load(request["file"], request["cores"])}
        if request["do"] == "run":
            return {"shapes": self.run(request["module"], request["rows"], request["length"])}
        self.drop(request["modules"])
        return {}

    def load(self, file: str, cores: int | None) -> int:
        """Load a file and return its number. ``cores`` means the first of several cores; None means all."""
        self._count += 1
        self._loaded[self._count] = load_on(self._package, self._torch, file, cores)
        return self._count

    def run(self, number: int, rows: int, length: int) -> list[list[int]]:
        """Run one forward pass on the batch in the shared memory; write its outputs there and return their shapes."""
        torch, tokens = self._torch, rows * length
        inputs = torch.frombuffer(self._mapped(INPUT_BYTES * tokens), dtype=torch.int64, count=3 * tokens)
        with torch.no_grad():
            found = self._loaded[number](*inputs.reshape(3, rows, length))
        outputs = list(found) if isinstance(found, (tuple, list)) else [found]
        offset, numbers = INPUT_BYTES * tokens, sum(output.numel() for output in outputs)
        memory = self._mapped(offset + NUMBER_BYTES * numbers)
        for output in outputs:
            count = output.numel()
            torch.frombuffer(memory, dtype=torch.float32, count=count, offset=offset).copy_(output.reshape(-1))
            offset += NUMBER_BYTES * count
        return [list(output.shape) for output in outputs]

    def _mapped(self, size: int) -> Any:
        """Return the shared memory, which is made larger if it is too small."""
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)
        if self._memory is None or len(self._memory) < size:
            self._memory = mmap.mmap(self._descriptor, 0)
        return self._memory

    def drop(self, numbers: list[int]) -> None:
        """Drop these modules, which frees their device memory."""
        for number in numbers:
            self._loaded.pop(number, None)
        gc.collect()


def load_on(package: Any, torch: Any, file: str, cores: int | None) -> Any:
    """Load a file on the first ``cores`` of several; by default the buckets of a model are spread over all."""
    placed: Any = nullcontext()
    if cores is not None:
        placing = getattr(package, "neuron_cores_context", None) or package.experimental.neuron_cores_context
        placed = placing(start_nc=0, nc_count=cores)
    with placed:
        return torch.jit.load(file).eval()


def main(argv: list[str]) -> int:
    """Import the package, report that, and reply to requests until the worker closes the socket."""
    name, socket, memory = argv[0], int(argv[1]), int(argv[2])
    end_with_worker()
    for descriptor in (socket, memory):
        os.set_inheritable(descriptor, False)
    connection = Connection(socket)
    try:
        package, torch = import_module(name), import_module("torch")
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        connection.send_bytes(json.dumps({"import_error": str(error), "missing": missing}).encode())
        return 1
    # The runtime polls with its own threads; torch's threads would compete with them.
    torch.set_num_threads(1)
    warnings.filterwarnings("error", message=NOT_CALCULATED)
    modules = LoadedModules(package, torch, memory)
    connection.send_bytes(b"{}")
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return 0
        try:
            reply = modules.reply_to(request)
        except Exception as error:
            reply = {"error": str(error) or type(error).__name__}
        connection.send_bytes(json.dumps(reply).encode())


def end_with_worker() -> None:
    """Let the kernel kill this process when standard input closes; the worker ends it in all other cases.

    PR_SET_PDEATHSIG would not work: it depends on the thread that started this process, and models are loaded on
    threads.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:
        sys.exit("the worker was gone before its device process began")


if __name__ == "__main__":
    # Do not import from this folder: its modules share names with others.
    sys.path.pop(0)
    sys.exit(main(sys.argv[1:]))
