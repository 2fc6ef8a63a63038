"""Play an older kind of CPU in a run of tests: ``pytest --cpu-kind avx2``.

The limits hold for oneDNN in torch and in OpenVINO (both read ONEDNN_MAX_CPU_ISA), for torch's own kernels, for MKL on
Intel's CPUs, and for the kind that Corelane finds. Kernels of other makers choose by the CPU itself: OpenVINO's MLAS.
"""

import os

import pytest

from corelane.artifacts.instructions import CPUINFO

#: By kind: the flag in /proc/cpuinfo that a machine needs to play it, the limit of oneDNN, those of torch and MKL.
KINDS = {
    "avx2": ("avx2", "AVX2", "avx2", "AVX2"),
    "avx2_vnni": ("avx_vnni", "AVX2_VNNI", "avx2", "AVX2"),
    "avx512": ("avx512f", "AVX512_CORE", "avx512", "AVX512"),
    "avx512_vnni": ("avx512_vnni", "AVX512_CORE_VNNI", "avx512", "AVX512"),
    "avx512_bf16": ("avx512_bf16", "AVX512_CORE_BF16", "avx512", "AVX512"),
    "amx": ("amx_bf16", "AVX512_CORE_AMX", "avx512", "AVX512"),
}

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")

#: What a test says that is printed at the end of the run.
TOLD = "told"


def pytest_configure(config: pytest.Config) -> None:
    """Set the limits before a library is loaded; a machine that is older ends the run at once, and well."""
    if (kind := config.getoption("--cpu-kind")) is None:
        return
    flag, *limits = KINDS[kind]
    if flag not in CPUINFO.read_text().split():
        pytest.exit(f"skipped: {kind}, as this CPU has no {flag}", returncode=0)
    os.environ.update(zip(VARIABLES, limits, strict=True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what tests told."""
    passed = (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed"))
    lines = sorted({str(said) for report in passed for name, said in report.user_properties if name == TOLD})
    if lines:
        terminalreporter.section(f"CPU kind: {config.getoption('--cpu-kind') or 'as the machine is'}")
        terminalreporter.write("\n".join([*lines, ""]))
