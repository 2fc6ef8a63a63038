"""The cores of this machine, and what a process must have in its environment before it serves one.

Affinity, thread counts and device visibility are fixed before torch is imported: a library that counts CPUs at
import never sees more than its own.
"""

import os
from dataclasses import dataclass

from corelane.engine.gpus import find_gpus
from corelane.errors import SetupError

#: Variables by which BLAS, OpenMP and tokenizers choose their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

#: glibc keeps blocks of up to 32 MiB, and 512 MiB at the top, instead of handing them back after each batch: the page
#: faults of getting them again cost up to a third of a forward pass (int8: 9.7 → 6.8 CPU seconds on a fixed load).
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}


@dataclass(frozen=True, slots=True)
class CoreSlot:
    """One core slot: the CPUs its worker is pinned to, and the environment it is started with."""

    index: int
    cpus: frozenset[int]
    environment: dict[str, str]


def cpu_slots(allowed: set[int] | None = None) -> list[CoreSlot]:
    """One slot per CPU this process may run on, in order."""
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    return [_cpu_slot(index, cpu) for index, cpu in enumerate(cpus)]


def _cpu_slot(index: int, cpu: int) -> CoreSlot:
    return CoreSlot(index, frozenset({cpu}), process_environment())


def process_environment() -> dict[str, str]:
    """What every worker is started with: one thread a library, and an allocator that keeps its memory."""
    return {**dict.fromkeys(THREAD_VARIABLES, "1"), **ALLOCATOR, "TOKENIZERS_PARALLELISM": "false"}


def core_slots(target: str) -> list[CoreSlot]:
    """What workers can be started for here; raises SetupError if there are no cores of the target."""
    if target == "cuda":
        return gpu_slots()
    return cpu_slots()


def gpu_slots() -> list[CoreSlot]:
    """One slot a GPU, which its worker sees alone; the worker may use every CPU."""
    cpus = frozenset(os.sched_getaffinity(0))
    return [
        CoreSlot(index, cpus, process_environment() | {"CUDA_VISIBLE_DEVICES": uuid})
        for index, uuid in enumerate(find_gpus())
    ]


def core_slot(index: int, target: str) -> CoreSlot:
    """The slot a worker of this index claims; raises SetupError if the machine has no such core."""
    slots = core_slots(target)
    if index >= len(slots):
        what = f"this machine has {len(slots)} GPUs" if target == "cuda" else f"this process may use {len(slots)} CPUs"
        raise SetupError(f"core {index} does not exist: {what} (0 to {len(slots) - 1})")
    return slots[index]


def pin(slot: CoreSlot) -> None:
    """Bind this process, and all it starts, to the slot's CPUs."""
    os.sched_setaffinity(0, slot.cpus)
