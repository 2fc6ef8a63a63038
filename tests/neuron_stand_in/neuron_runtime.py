"""The stand-in's runtime: what happens in a process that imports a Neuron package and loads a model.

It takes its cores at the first load, as NEURON_RT_VISIBLE_CORES says then, and keeps them until the process ends, even
if every model is gone. Models take memory of a core until they are dropped. Every failure is a RuntimeError with the
documented text; what the real runtime writes to standard error is written there too.
"""

import json
import os
import re
import sys
import time
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from neuron_machine import Machine, find_machine, folder, next_fault, take_core

#: Which package made what, and for which chips.
TARGETS = {"torch_neuron": ("inf1",), "torch_neuronx": ("inf2", "trn1", "trn2", "trn3")}

#: inf2 and trn1 have the same cores.
GENERATIONS = {"inf1": 1, "inf2": 2, "trn1": 2, "trn2": 3, "trn3": 4}

NOT_INITIALISED = (
    "The PyTorch Neuron Runtime could not be initialized. Neuron Driver issues are logged to your system logs."
)

#: The texts that go with a status, as far as documents and issues have them.
MESSAGES = {
    2: "Invalid",
    4: "Allocation Failure",
    6: "Hardware Error",
    9: "Not Enough Neuron Cores",
    1003: "Numerical Error",
    1006: "Execution Out-Of-Bounds Memory Access",
}

#: Without NEURON_RT_EXEC_TIMEOUT, in seconds; the documents give 2, 30 and 600.
DEFAULT_TIMEOUT_S = 30

stock_load = torch.jit.load


def log(part: str, text: str) -> None:
    """Write a line as the runtime writes it to standard error."""
    if os.environ.get("NEURON_RT_LOG_LEVEL", "ERROR").upper() != "QUIET":
        sys.stderr.write(
            f"{time.strftime('%Y-%b-%d %H:%M:%S')}.000000 {os.getpid()}:{os.getpid()} ERROR {part} {text}\n"
        )
        sys.stderr.flush()


def parse_visible(text: str) -> list[int]:
    """``m,n,p-q``; ValueError unless contiguous and ascending."""
    cores: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise ValueError(text)
        cores += range(int(match[1]), int(match[2] or match[1]) + 1)
    if cores != list(range(cores[0], cores[0] + len(cores))):
        raise ValueError(text)
    return cores


class Runtime:
    """libnrt in one process."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.cores: tuple[int, ...] = ()
        self.failed = False
        self.used: dict[int, int] = {}
        self.placed: list[tuple[int, int]] = []
        self.families: set[str] = set()
        self._held: list[int] = []

    def start(self) -> None:
        """nrt_init: once; a failure is final for the process."""
        if self.failed:
            raise RuntimeError(NOT_INITIALISED)
        if self.cores:
            return
        place, self.machine = folder(), find_machine()
        if place is None or self.machine is None:
            self._fail("TDRV:tdrv_get_dev_info", "No neuron device available")
            return
        wanted = self._wanted(self.machine)
        if next_fault(place, "init", tuple(wanted)):
            self._fail("NRT:nrt_init", "NRT_FAILURE in nrt_init()")
        for core in wanted:
            descriptor = take_core(place, core) if core in self.machine.cores else None
            if descriptor is None:
                self._refuse(core, len(wanted))
                return
            self._held.append(descriptor)
        self.cores = tuple(wanted)
        self.used = dict.fromkeys(self.cores, 0)

    def _wanted(self, machine: Machine) -> list[int]:
        visible, count = os.environ.get("NEURON_RT_VISIBLE_CORES"), int(os.environ.get("NEURON_RT_NUM_CORES", "0"))
        try:
            return parse_visible(visible) if visible else machine.cores[: count or None]
        except ValueError:
            self._fail("NRT:nrt_init", "Neuron cores are not contiguous")
            return []

    def _refuse(self, core: int, count: int) -> None:
        while self._held:
            os.close(self._held.pop())
        if "torch_neuron" in self.families:
            text = f"NeuronCore(s) not available - Requested:nc{core}-nc{core + count - 1} Available:0"
        else:
            logical = self.machine.logical if self.machine else 1
            text = (
                f"Logical Neuron Core(s) not available - Requested:lnc{core}-lnc{core + count - 1} Available:0 "
                f"Logical Core size:{logical} (cores busy, ret=-16)"
            )
        log("NRT:nrt_allocate_neuron_cores", text)
        self._fail("NRT:nrt_init", "NRT_FAILURE in nrt_init()")

    def _fail(self, part: str, text: str) -> None:
        log(part, text)
        self.failed = True
        raise RuntimeError(NOT_INITIALISED)

    def place_model(self, size: int, cores: int) -> tuple[int, ...]:
        """Cores for a model, as positions: those asked for by a context, else the least used; takes their memory."""
        assert self.machine is not None
        if cores > len(self.cores):
            raise RuntimeError(f"Could not load the model {describe(9)}")
        start = self.placed[-1][0] if self.placed else -1
        if start < 0:
            room = range(len(self.cores) - cores + 1)
            start = min(room, key=lambda first: sum(self.used[core] for core in self.cores[first : first + cores]))
        chosen = self.cores[start : start + cores]
        if any(self.used[core] + size // cores > self.machine.core_bytes for core in chosen):
            log("TDRV:dmem_alloc_internal", f"Failed to alloc DEVICE memory: {size}")
            raise RuntimeError(f"Could not load the model {describe(4)}")
        for core in chosen:
            self.used[core] += size // cores
        return chosen

    @staticmethod
    def give_back(used: dict[int, int], cores: tuple[int, ...], size: int) -> None:
        """nrt_unload: memory is free again, the cores stay taken."""
        for core in cores:
            used[core] -= size // len(cores)

    def end(self) -> None:
        """Do the end of the process; for tests that play several processes in one."""
        while self._held:
            os.close(self._held.pop())
        self.__init__()  # type: ignore[misc]


runtime = Runtime()


class LoadedModel:
    """What torch.jit.load gives for an artifact: called with tensors of the traced shapes and types, by position."""

    def __init__(self, inner: Any, facts: dict[str, Any], cores: tuple[int, ...], size: int) -> None:
        self._inner = inner
        self._facts = facts
        self._cores = cores
        weakref.finalize(self, Runtime.give_back, runtime.used, cores, size)

    def eval(self) -> "LoadedModel":
        """Nothing to change."""
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        shapes = self._facts["shapes"]
        for position, tensor in enumerate(inputs):
            got, wanted = list(tensor.shape), shapes[min(position, len(shapes) - 1)]
            if got != wanted:
                shown = [" ".join(map(str, shape)) for shape in (got, wanted)]
                raise interpreter_error(
                    f"Incorrect tensor shape at input #{position}: received {shown[0]}, expected {shown[1]}"
                )
            if tensor.dtype != torch.int64:
                raise interpreter_error(f"Incorrect tensor type at input #{position}: received {tensor.dtype}")
        self._fail_if_due({int(token) for token in inputs[0].unique()})
        try:
            outputs = self._inner(*inputs)
        except (IndexError, RuntimeError) as error:
            if "index out of range" in str(error):
                raise execution_error(1006) from None
            raise
        if not all(bool(torch.isfinite(output).all()) for output in outputs):
            raise execution_error(1003)
        return outputs

    def _fail_if_due(self, tokens: set[int]) -> None:
        place = folder()
        assert place is not None
        fault = next_fault(place, "execute", self._cores, tokens)
        if fault is None:
            return
        timeout_s = float(os.environ.get("NEURON_RT_EXEC_TIMEOUT", DEFAULT_TIMEOUT_S))
        if "hang_s" in fault:
            time.sleep(min(fault["hang_s"], timeout_s))
            if fault["hang_s"] < timeout_s:
                return
            log("TDRV:exec_wait", f"Execution timeout after {timeout_s:g} s")
        raise execution_error(fault.get("status", 5))


def execution_error(status: int) -> RuntimeError:
    """Raise the error of a forward pass."""
    return interpreter_error(f"Failed to execute the model {describe(status)}")


def describe(status: int) -> str:
    """Return a status as the runtime writes it."""
    return f"status={status} message={MESSAGES.get(status, 'Unknown')}"


def interpreter_error(text: str) -> RuntimeError:
    """Return an error as the TorchScript interpreter hands it on, inside a longer text."""
    return RuntimeError(
        "The following operation failed in the TorchScript interpreter.\n"
        "Traceback of TorchScript (most recent call last):\n"
        '  File "code/__torch__/torch_neuronx/xla_impl/trace.py", line 18, in forward\n'
        f"RuntimeError: {text}\n"
    )


def load(path: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.jit.load, with a core behind it for what was compiled for one."""
    files = {"neuron.json": ""}
    inner = stock_load(path, *args, _extra_files=files, **kwargs)
    if not files["neuron.json"]:
        return inner
    facts = json.loads(files["neuron.json"])
    if facts["family"] not in runtime.families:
        op = "forward_1" if facts["family"] == "torch_neuron" else "forward_v2"
        raise RuntimeError(f"\nUnknown builtin op: neuron::{op}.\nCould not find any similar ops to neuron::{op}.")
    runtime.start()
    machine, place = runtime.machine, folder()
    assert machine is not None
    assert place is not None
    if fault := next_fault(place, "load", runtime.cores):
        raise RuntimeError(f"Could not load the model {describe(fault['status'])}")
    if GENERATIONS[facts["target"]] != GENERATIONS[machine.chip]:
        raise RuntimeError(f"Could not load the model {describe(6)}")
    if facts.get("logical", machine.logical) != machine.logical:
        raise RuntimeError(f"Could not load the model {describe(2)}")
    size = int(facts.get("bytes", Path(path).stat().st_size))
    return LoadedModel(inner, facts, runtime.place_model(size, facts.get("pipeline_cores", 1)), size)


@contextmanager
def neuron_cores_context(start_nc: int = -1, nc_count: int = -1) -> Iterator[None]:
    """Models loaded inside go to these cores, counted from the first visible one."""
    runtime.start()
    if start_nc + max(nc_count, 1) > len(runtime.cores):
        raise ValueError(f"Invalid NeuronCore count nc_count={nc_count}")
    runtime.placed.append((start_nc, nc_count))
    try:
        yield
    finally:
        runtime.placed.pop()


def install(family: str) -> None:
    """Let torch.jit.load know a package's models, and give the package its functions, as it is imported."""
    runtime.families.add(family)
    torch.jit.load = load
    package = sys.modules[family]
    experimental = sys.modules.setdefault(f"{family}.experimental", types.ModuleType(f"{family}.experimental"))
    package.experimental = experimental  # type: ignore[attr-defined]
    for module in (package, experimental):
        module.neuron_cores_context = neuron_cores_context  # type: ignore[attr-defined]


def uninstall() -> None:
    """Undo it, as far as this process goes on without Neuron."""
    torch.jit.load = stock_load
    for family in TARGETS:
        for name in (family, f"{family}.tracing", f"{family}.experimental"):
            sys.modules.pop(name, None)
    runtime.end()
