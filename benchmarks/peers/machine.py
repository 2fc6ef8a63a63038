"""The machine that all is measured on."""

import os
import platform
from pathlib import Path

from corelane.bench.schema import Machine


def describe_machine() -> Machine:
    """Return this machine, as the report of `corelane bench` has it."""
    about = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.partition(":")[2].strip() for line in about if line.startswith("model name")]
    return Machine(
        cpu=named[0] if named else platform.processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        amx=any("amx_tile" in line for line in about),
        kernel=platform.release(),
        python=platform.python_version(),
    )
