"""The instruction sets that decide which number format is fast on a CPU, and the kinds of CPU named after them.

An artifact's dtype was chosen on the machine that compiled it, and may be slow on another. So one version may have an
artifact for each kind of CPU. A kind is named after the latest instruction set that matters. A CPU of a later kind also
has the instruction sets of earlier kinds.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

#: The instruction sets that matter, as the kernel names them. CPUs with ``avx_vnni`` and without AVX-512 (Alder Lake,
#: Sierra Forest) are later than the first with AVX-512, which had no VNNI.
INSTRUCTION_SETS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")

#: The latest instruction set that oneDNN uses with each value of ONEDNN_MAX_CPU_ISA that excludes some.
LIMITS = {
    **dict.fromkeys(("SSE41", "AVX"), ""),
    "AVX2": "avx2",
    **dict.fromkeys(("AVX2_VNNI", "AVX2_VNNI_2"), "avx_vnni"),
    "AVX512_CORE": "avx512f",
    "AVX512_CORE_VNNI": "avx512_vnni",
    **dict.fromkeys(("AVX512_CORE_BF16", "AVX512_CORE_FP16"), "avx512_bf16"),
}

#: The instruction sets that make a number format fast. `corelane compile` tries a format only where the CPU has one of
#: them: elsewhere it cannot win. int8 without VNNI was 1.08 times as fast as fp32, and its sums overflow.
FAST_BY = {
    "fp32": ("avx2", "avx512f"),
    "bf16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx_vnni", "avx512_vnni", "amx_int8"),
}

#: Both mean the kind of this CPU: AUTO_KIND in the settings, THIS_CPU when an artifact is compiled.
AUTO_KIND, THIS_CPU = "auto", "this"


def instruction_sets(cpuinfo: str | None = None) -> tuple[str, ...]:
    """Return the instruction sets that matter, of this CPU or in ``cpuinfo`` (the kernel's text); empty if unknown.

    Of this CPU, those that ONEDNN_MAX_CPU_ISA leaves to the libraries.
    """
    most = len(INSTRUCTION_SETS)
    if cpuinfo is None:
        limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()  # noqa: TID251  # oneDNN's
        most = rank_of(LIMITS[limit]) if limit in LIMITS else most
        try:
            cpuinfo = CPUINFO.read_text()
        except OSError:
            return ()
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    if "avx512_vnni" in flags:
        # The same instructions on wider vectors.
        flags.add("avx_vnni")
    return tuple(name for name in INSTRUCTION_SETS[:most] if name in flags)


def lacking(chosen_on: str, dtype: str, present: Iterable[str]) -> list[str]:
    """Return the instruction sets that make a dtype fast where an artifact was compiled, and are missing here.

    ``chosen_on`` is ``tools["cpu"]`` of the manifest. Older manifests have only the width of a vector there: then
    nothing is returned.
    """
    here, there = set(present), set(chosen_on.split())
    return [name for name in FAST_BY.get(dtype, ()) if name in there and name not in here]


def may_be_fast(dtype: str) -> bool:
    """Return whether this CPU may be faster in a dtype than in fp32; also if its instruction sets are unknown."""
    here = instruction_sets()
    return not here or any(name in here for name in FAST_BY[dtype])


def kind_of(sets: Iterable[str]) -> str:
    """Return the kind of a CPU with these instruction sets: the latest one that matters; empty if there is none."""
    present = set(sets)
    return next((name for name in reversed(INSTRUCTION_SETS) if name in present), "")


def host_kind(setting: str = AUTO_KIND) -> str:
    """Return the kind in the settings, or the kind of this CPU if ``setting`` is AUTO_KIND."""
    return kind_of(instruction_sets()) if setting == AUTO_KIND else setting


def sets_up_to(kind: str) -> tuple[str, ...]:
    """Return the instruction sets that a CPU of this kind has."""
    return INSTRUCTION_SETS[: rank_of(kind)]


def rank_of(kind: str) -> int:
    """Return the place of a kind among all, counted from 1; 0 if it is unknown."""
    return INSTRUCTION_SETS.index(kind) + 1 if kind in INSTRUCTION_SETS else 0


def choose_folder(kinds: Mapping[str, str], default: str, here: str) -> str:
    """Return the folder of the artifact that a CPU should use; ``kinds`` are the artifacts' kinds by folder.

    In order of preference: the CPU's own kind, the latest of earlier kinds (the CPU has all of their instruction
    sets), the ``default`` folder, the earliest of later kinds.
    """

    def preference(folder: str) -> tuple[int, int, bool]:
        kind = rank_of(kinds[folder])
        if 0 < kind <= rank_of(here):
            return 2, kind, folder != default
        return (1, 0, False) if folder == default else (0, -kind, False)

    return max(sorted(kinds), key=preference)
