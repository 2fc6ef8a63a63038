"""The instruction sets of a CPU that decide which number format is fast on it.

An artifact's dtype was chosen on the machine that compiled it, and may be slow on another.
"""

from collections.abc import Iterable
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

#: Those that matter, as the kernel names them, from the oldest to the latest.
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")

#: What makes a number format fast.
FAST_BY = {
    "fp32": ("avx2", "avx512f"),
    "bf16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx512_vnni", "amx_int8"),
}


def instruction_sets(cpuinfo: str | None = None) -> tuple[str, ...]:
    """Return those that matter of this CPU, or of one that a text like the kernel's describes; none if unknown."""
    if cpuinfo is None:
        try:
            cpuinfo = CPUINFO.read_text()
        except OSError:
            return ()
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    return tuple(name for name in INSTRUCTION_SETS if name in flags)


def lacking(chosen_on: str, dtype: str, present: Iterable[str]) -> list[str]:
    """Return what makes a dtype fast on the CPU that an artifact was chosen on, and is not present here.

    ``chosen_on`` is ``tools["cpu"]`` of the manifest; older manifests say there only how wide a vector is, and nothing
    follows from that.
    """
    here, there = set(present), set(chosen_on.split())
    return [name for name in FAST_BY.get(dtype, ()) if name in there and name not in here]
