"""Which CPU an artifact was chosen for, and whether it is this one."""

import shutil
from pathlib import Path

import pytest
import structlog

from corelane.artifacts.instructions import host_kind, instruction_sets, lacking
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, missing_instructions
from corelane.cli.doctor import check_artifact
from corelane.log import get_logger
from corelane.settings import Settings
from workers.models.runners import Loader

SAPPHIRE_RAPIDS = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8\n"


def test_instruction_sets_that_matter_are_read_in_their_order() -> None:
    found = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    assert instruction_sets(SAPPHIRE_RAPIDS) == found
    assert instruction_sets("Features\t: fp asimd\n") == ()
    assert instruction_sets("flags\t: avx2 avx_vnni\n") == ("avx2", "avx_vnni")


@pytest.mark.parametrize(
    ("chosen_on", "dtype", "present", "missing"),
    [
        ("avx2 avx512f avx512_bf16 amx_bf16", "bf16", ("avx2", "avx512f"), ["avx512_bf16", "amx_bf16"]),
        ("avx2 avx512f avx512_bf16 amx_bf16", "fp32", ("avx2", "avx512f"), []),
        ("avx2 avx512f avx512_vnni", "int8", ("avx2",), ["avx512_vnni"]),
        ("avx2 avx_vnni", "int8", ("avx2", "avx_vnni", "avx512_vnni"), []),
        ("avx2", "bf16", ("avx2", "amx_bf16"), []),
        ("AVX512", "bf16", (), []),
        ("", "int8", (), []),
    ],
)
def test_what_made_a_dtype_fast_and_is_not_here_is_named(
    chosen_on: str, dtype: str, present: tuple[str, ...], missing: list[str]
) -> None:
    assert lacking(chosen_on, dtype, present) == missing


@pytest.mark.parametrize(
    ("limit", "kind"),
    [("AVX2", "avx2"), ("avx512_core", "avx512f"), ("AVX512_CORE_AMX", "amx_bf16"), ("odd", "amx_bf16")],
)
def test_limit_of_the_libraries_makes_this_cpu_an_older_kind(
    limit: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(SAPPHIRE_RAPIDS)
    monkeypatch.setattr("corelane.artifacts.instructions.CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert host_kind() == kind


def test_artifact_of_another_cpu_is_warned_of_by_worker_and_doctor(
    tiny_artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert missing_instructions(tiny_artifact.manifest) == []
    (tmp_path / "cpuinfo").write_text("flags\t\t: avx2 avx512f\n")
    monkeypatch.setattr("corelane.artifacts.instructions.CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    other = tiny_artifact.manifest.model_copy(update={"dtype": "bf16", "tools": {"cpu": "avx2 avx512_bf16 amx_bf16"}})
    assert missing_instructions(other.model_copy(update={"target": "inf2"})) == []
    folder = tmp_path / "artifacts" / other.name / other.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    settings = Settings(data_dir=tmp_path, model=other.name)
    # A logger that was used before may be cached, and would not be captured.
    monkeypatch.setattr("workers.models.runners.log", get_logger("workers.models.runners"))
    for manifest, missing in ((tiny_artifact.manifest, []), (other, ["avx512_bf16", "amx_bf16"])):
        (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())
        with structlog.testing.capture_logs() as logged:
            Loader("cpu", settings.artifact_root).load(manifest.version_id).close()
        assert [line["lacks"] for line in logged if line["event"] == "artifact_of_another_cpu"] == [missing][
            : len(missing)
        ]
        check = check_artifact(settings)
        assert (check.state, "avx512_bf16, amx_bf16, which this one lacks" in check.found) == (
            ("warn", True) if missing else ("ok", False)
        )
