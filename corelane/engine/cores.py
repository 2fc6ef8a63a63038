"""The cores of this machine, and what a process must have in its environment before it serves one.

Affinity, thread counts and device visibility are fixed before torch is imported: a library that counts CPUs at
import never sees more than its own.
"""

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass

from corelane.errors import SetupError

#: Variables by which BLAS, OpenMP and tokenizers choose their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

#: glibc keeps blocks of up to 32 MiB, and 512 MiB at the top, instead of handing them back after each batch: the page
#: faults of getting them again cost up to a third of a forward pass (int8: 9.7 → 6.8 CPU seconds on a fixed load).
MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 32 << 20, 512 << 20
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
}

#: The same two for a process that runs already: their names in glibc's mallopt.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1


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
    threads = dict.fromkeys(THREAD_VARIABLES, "1")
    return CoreSlot(index, frozenset({cpu}), {**threads, **ALLOCATOR, "TOKENIZERS_PARALLELISM": "false"})


def core_slot(index: int, target: str) -> CoreSlot:
    """The slot a worker of this index claims; raises SetupError if the machine has no such core."""
    if target not in ("cpu", "null"):
        raise SetupError(f"cores of target {target!r} are not known; this build has: cpu")
    slots = cpu_slots()
    if index >= len(slots):
        raise SetupError(f"core {index} does not exist: this process may use {len(slots)} CPUs (0 to {len(slots) - 1})")
    return slots[index]


def pin(slot: CoreSlot) -> None:
    """Bind this process, and all it starts, to the slot's CPUs."""
    os.sched_setaffinity(0, slot.cpus)


def keep_memory() -> None:
    """Set this process' allocator as a worker's is at its start; elsewhere than on glibc nothing happens."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
