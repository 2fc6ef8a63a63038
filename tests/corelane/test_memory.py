"""Whether a model fits into memory, and how much of that there is."""

from pathlib import Path

import pytest

from corelane.engine.memory import available_bytes, check_room
from corelane.errors import LoadFailed

MB = 1000**2
GIB = 1 << 30


def test_version_that_does_not_fit_is_refused_with_figures_and_what_to_do() -> None:
    check_room("qa@1", 100 * MB, 328 * MB)
    check_room("qa@1", 10**12, None)
    with pytest.raises(LoadFailed) as refused:
        check_room("qa@1", 100 * MB, 327 * MB)
    assert refused.value.detail == (
        "qa@1 needs 328 MB of memory while it is loaded (twice its files' 100 MB, and 128 MB); 327 MB are available: "
        "unload another version first, raise the memory limit, or compile it with fewer buckets or in int8; then load "
        "it again"
    )


def machine(folder: Path, groups: str, available: int = 8 * GIB) -> tuple[Path, Path]:
    """Write the files of a machine: those of processes, and of control groups."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "self" / "cgroup").write_text(groups)
    (folder / "proc" / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {available // 1024} kB\n")
    return folder / "proc", folder / "cgroup"


def group(path: Path, files: dict[str, object]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).write_text(f"{content}\n")


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "0::/\n")
    assert available_bytes(proc, cgroups) == 8 * GIB
    assert available_bytes(tmp_path / "nowhere", cgroups) is None


def test_limit_of_a_group_around_counts_and_files_that_can_be_dropped_do_not(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "0::/outer/inner\n")
    group(cgroups / "outer/inner", {"memory.max": "max", "memory.current": GIB, "memory.stat": "anon 1"})
    used = {"memory.current": 3 * GIB, "memory.stat": f"anon 1\ninactive_file {GIB}"}
    group(cgroups / "outer", {"memory.max": 4 * GIB, **used})
    assert available_bytes(proc, cgroups) == 2 * GIB


def test_limit_of_the_first_version_counts_inside_a_container_too(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "5:devices:/\n4:cpu,memory:/docker/abc\n0::/\n")
    used = {"memory.usage_in_bytes": 3 * GIB, "memory.stat": "total_inactive_file 0"}
    group(cgroups / "memory", {"memory.limit_in_bytes": 4 * GIB, **used})
    assert available_bytes(proc, cgroups) == GIB
