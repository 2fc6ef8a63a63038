import os
import platform
import subprocess
import sys

import pytest

from compile.torch.packing import MACHINES
from corelane.engine.cores import KERNELS, THREAD_VARIABLES, core_slot, cpu_slots, only_slot
from corelane.errors import SetupError
from corelane.settings import Settings


def test_each_allowed_cpu_is_a_slot_with_one_thread() -> None:
    slots = cpu_slots({3, 9, 5})
    assert [(slot.index, set(slot.cpus)) for slot in slots] == [(0, {3}), (1, {5}), (2, {9})]
    assert all(slot.environment[name] == "1" for slot in slots for name in THREAD_VARIABLES)


def test_wide_core_has_several_cpus_and_as_many_threads() -> None:
    slots = cpu_slots({3, 9, 5, 6, 7}, size=2)
    assert [(slot.index, set(slot.cpus)) for slot in slots] == [(0, {3, 5}), (1, {6, 7})]
    assert all(slot.environment[name] == "2" for slot in slots for name in THREAD_VARIABLES)
    with pytest.raises(SetupError, match="a core of 999 CPUs"):
        core_slot(0, Settings(cpus_per_core=999))


def test_core_that_does_not_exist_is_refused_saying_which_do() -> None:
    with pytest.raises(SetupError, match="core 9999 does not exist"):
        core_slot(9999, Settings())


def test_only_core_of_a_container_floats_over_its_cpus() -> None:
    slot = only_slot(Settings(cpus_per_core=2))
    assert (slot.index, slot.cpus) == (0, frozenset(os.sched_getaffinity(0)))
    assert slot.environment["OMP_NUM_THREADS"] == "2"


def test_memory_is_kept_in_a_process_that_runs_already() -> None:
    code = (
        "import ctypes, re, tempfile; from corelane.engine.cores import keep_memory; keep_memory()\n"
        "block = ctypes.CDLL(None); block.malloc.restype = ctypes.c_void_p\n"
        "address = block.malloc(ctypes.c_size_t(16 << 20))\n"
        "heap = [line.split()[0] for line in open('/proc/self/maps') if '[heap]' in line]\n"
        "print(any(int(a, 16) <= address < int(b, 16) for a, _, b in (part.partition('-') for part in heap)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "True"


#: Runs a packed linear layer over 1 to as many tokens as are given, and over one token again.
MANY_SHAPES = """
import sys, torch
weight, bias = torch.ones(8, 8), torch.ones(8)
packed = torch.ops.mkldnn._reorder_linear_weight(weight)
for tokens in (*range(1, int(sys.argv[1]) + 1), 1):
    torch.ops.mkldnn._linear_pointwise(torch.ones(tokens, 8), packed, bias, "none", [], None)
"""


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="oneDNN packs no weights here")
@pytest.mark.parametrize(("shapes", "made"), [(KERNELS // 4, 1), (KERNELS, 2)])
def test_core_keeps_a_bounded_number_of_kernels(shapes: int, made: int) -> None:
    [slot, *_] = cpu_slots()
    told = subprocess.run(
        [sys.executable, "-c", MANY_SHAPES, str(shapes)],
        env={**os.environ, **slot.environment, "ONEDNN_VERBOSE": "profile_create"},
        capture_output=True,
        text=True,
        check=True,
    )
    misses = [line for line in told.stdout.splitlines() if "create:cache_miss" in line and ",mb1ic8oc8," in line]
    assert len(misses) == made
