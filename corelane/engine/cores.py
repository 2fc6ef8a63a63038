"""The cores of this machine, and the environment of a process that serves one.

Affinity, thread counts and device visibility are fixed before torch is imported. So a library that counts CPUs at
import sees only its own, and the runtime of an accelerator, which reads its cores once, finds the right ones.
"""

import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace

from corelane.engine.backends.plugin import HOST_TARGETS, AddedTarget, added_targets, all_targets
from corelane.errors import SetupError
from corelane.settings import Settings

#: Variables by which BLAS, OpenMP and tokenizers choose their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

#: glibc keeps free blocks of up to 32 MiB, and 512 MiB at the top of the heap, instead of returning them after each
#: batch. The page faults of getting them again cost up to a third of a forward pass (int8: 9.7 → 6.8 CPU seconds on a
#: fixed load).
MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 32 << 20, 512 << 20
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
}

#: Number of kernels that oneDNN keeps: two for each shape of a batch, and six for each number of tokens, as a linear
#: layer counts twice. Each takes 0.3 MB, most of it its description, and 0.3 ms to make. Lone items need at
#: most this many. If large and small jobs mix, a pass makes one or two new kernels. With 512 kernels, and twice as many
#: lengths of rows, a pass made no fewer. oneDNN's default is 1,024.
KERNELS = 192

#: Torch keeps another copy of each kernel's description. Only the next layer needs it, not the next pass: 512 copies
#: saved no time compared with 16, and took 130 MB more. A pass of BERT needs five, one of DeBERTa a dozen.
KERNELS_OF_A_PASS = 32

KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KERNELS), "LRU_CACHE_CAPACITY": str(KERNELS_OF_A_PASS)}

#: The C library, loaded before any fork; PR_SET_PDEATHSIG of prctl(2) sets the signal that a process gets when its
#: parent dies.
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1

#: Names in glibc's mallopt of the two settings above, for a process that is running already.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1


@dataclass(frozen=True, slots=True)
class CoreSlot:
    """One core slot: the CPUs that its worker is pinned to, and the worker's environment."""

    index: int
    cpus: frozenset[int]
    environment: dict[str, str]


def cpu_slots(allowed: set[int] | None = None, size: int = 1) -> list[CoreSlot]:
    """Return one slot per ``size`` CPUs this process may run on, in order. Leftover CPUs are not used."""
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    starts = range(0, len(cpus) - size + 1, size)
    return [
        CoreSlot(index, frozenset(cpus[start : start + size]), _process_environment(size))
        for index, start in enumerate(starts)
    ]


def _process_environment(threads: int = 1) -> dict[str, str]:
    threaded = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**threaded, **ALLOCATOR, **KERNEL_CACHES, "TOKENIZERS_PARALLELISM": "false"}


def added_slots(target: AddedTarget, settings: Settings) -> list[CoreSlot]:
    """Return one slot per core of a plugin's target. Its worker may use every CPU, or those near its device."""
    allowed = frozenset(os.sched_getaffinity(0))
    environment = _process_environment()
    return [
        CoreSlot(core.index, (core.cpus or allowed) & allowed or allowed, {**environment, **core.environment})
        for core in target.cores(settings)
    ]


def core_slots(settings: Settings) -> list[CoreSlot]:
    """Return the slots of the settings' target on this machine; raises SetupError if there are none."""
    if settings.target in HOST_TARGETS:
        slots = cpu_slots(size=settings.cpus_per_core)
        if not slots:
            raise SetupError(f"a core of {settings.cpus_per_core} CPUs needs more than this process may use")
        return slots
    if (added := added_targets().get(settings.target)) is not None:
        return added_slots(added, settings)
    raise SetupError(f"nothing here has cores of {settings.target!r}; there are: {', '.join(all_targets())}")


def core_slot(index: int, settings: Settings) -> CoreSlot:
    """Return the slot with this index, for its worker to claim; raises SetupError if there is no such core."""
    slots = {slot.index: slot for slot in core_slots(settings)}
    if index in slots:
        return slots[index]
    if settings.target != "cpu":
        raise SetupError(f"core {index} does not exist: this machine has {', '.join(map(str, slots))}")
    raise SetupError(f"core {index} does not exist: this process may use {len(slots)} CPUs (0 to {len(slots) - 1})")


def only_slot(settings: Settings) -> CoreSlot:
    """Return the one slot of a container that was given one core, as slot 0, whatever its number on the host.

    A CPU core is not pinned within the container: without a CPU manager every container sees all CPUs of its host, and
    all would be pinned to the first. Raise SetupError if there are several cores.
    """
    if settings.target in HOST_TARGETS:
        return CoreSlot(0, frozenset(os.sched_getaffinity(0)), _process_environment(settings.cpus_per_core))
    slots = core_slots(settings)
    if len(slots) > 1:
        raise SetupError(
            f"here are {len(slots)} cores ({', '.join(str(slot.index) for slot in slots)}): give the container one, as "
            "a Kubernetes plug-in does by NEURON_RT_VISIBLE_CORES, or say which with --core"
        )
    return replace(slots[0], index=0)


def pin(slot: CoreSlot) -> None:
    """Bind this process, and its children, to the slot's CPUs."""
    os.sched_setaffinity(0, slot.cpus)


def keep_memory() -> None:
    """Make this process keep freed memory, as workers do from their start. Does nothing without glibc."""
    with suppress(AttributeError):
        LIBC.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        LIBC.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


def die_with_parent() -> None:
    """Make this process get SIGTERM when its parent dies; for ``preexec_fn``."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
