"""The instruction sets of a CPU that decide which number format is fast on it, and the kinds of CPU by them.

An artifact's dtype was chosen on the machine that compiled it, and may be slow on another. So one version may have an
artifact for each kind of CPU. A kind is named after the latest instruction set that matters; a CPU of a later kind has
those of the kinds before it.
"""

from collections.abc import Iterable, Mapping
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

#: Asks for the kind of this CPU: in the settings, and when an artifact is compiled for it.
AUTO_KIND, THIS_CPU = "auto", "this"


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


def kind_of(sets: Iterable[str]) -> str:
    """Return the kind of a CPU with these instruction sets: the latest that matters; empty if none does."""
    present = set(sets)
    return next((name for name in reversed(INSTRUCTION_SETS) if name in present), "")


def host_kind(setting: str = AUTO_KIND) -> str:
    """Return the kind of this CPU, or the one that the settings name in place of it."""
    return kind_of(instruction_sets()) if setting == AUTO_KIND else setting


def sets_up_to(kind: str) -> tuple[str, ...]:
    """Return the instruction sets that a CPU of this kind has."""
    return INSTRUCTION_SETS[: rank_of(kind)]


def rank_of(kind: str) -> int:
    """Return the place of a kind among all, counted from 1; 0 if it is not known."""
    return INSTRUCTION_SETS.index(kind) + 1 if kind in INSTRUCTION_SETS else 0


def choose_folder(kinds: Mapping[str, str], default: str, here: str) -> str:
    """Return the folder of the artifact that a CPU takes, of those whose kinds are given by folder.

    First comes the one for its own kind, then the latest of the kinds before it: that one lacks nothing here. Then
    comes the ``default`` folder, then the earliest of the kinds after it.
    """

    def preference(folder: str) -> tuple[int, int, bool]:
        kind = rank_of(kinds[folder])
        if 0 < kind <= rank_of(here):
            return 2, kind, folder != default
        return (1, 0, False) if folder == default else (0, -kind, False)

    return max(sorted(kinds), key=preference)
