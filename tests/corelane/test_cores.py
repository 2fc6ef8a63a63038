import os
import subprocess
import sys

import pytest

from corelane.engine.cores import THREAD_VARIABLES, core_slot, cpu_slots, only_slot
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


def test_slots_are_those_this_process_may_run_on() -> None:
    assert {cpu for slot in cpu_slots() for cpu in slot.cpus} == os.sched_getaffinity(0)


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


#: A linear layer on packed weights, as models run it, with 600 numbers of rows and then again with the last ones first.
SHAPES = """
import torch
weight = torch.ops.mkldnn._reorder_linear_weight(torch.ones(16, 16))
for rows in (*range(1, 601), *range(600, 0, -1)):
    torch.ops.mkldnn._linear_pointwise(torch.ones(rows, 16), weight, None, "none", [], "")
"""


def test_worker_keeps_the_kernels_of_few_shapes() -> None:
    """What is kept grows a worker: with 512 for each of two caches it held 940 MB after 5,000 mixed questions."""
    env = {"PATH": "", "ONEDNN_VERBOSE": "profile_create", **cpu_slots()[0].environment}
    done = subprocess.run([sys.executable, "-c", SHAPES], env=env, capture_output=True, text=True, check=True)
    again = done.stdout.count("create:cache_hit")
    assert 50 < again < 200
