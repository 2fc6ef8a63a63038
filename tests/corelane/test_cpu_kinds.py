"""Artifacts of one version for several kinds of CPU: which one a host takes, here and from a remote root."""

import shutil
from pathlib import Path

import pytest

from corelane.artifacts.finding import find_artifact, list_artifacts
from corelane.artifacts.instructions import INSTRUCTION_SETS, choose_folder, host_kind, kind_of, rank_of, sets_up_to
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, outgrown
from corelane.artifacts.remote import RemoteRoot
from corelane.cli.compile import compiled
from corelane.errors import ArtifactRefused
from corelane.settings import Settings
from tests.tools.artifacts import add_for_kind
from workers.models.runners import Loader

BF16, AMX = "avx512_bf16", "amx_bf16"


@pytest.fixture
def root(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    """Lay out one version for AVX-512 with bf16, and beside it for AVX2."""
    root = tmp_path / "artifacts"
    add_for_kind(tiny_artifact, root, "cpu", BF16)
    add_for_kind(tiny_artifact, root, "cpu-avx2", "avx2")
    return root


def test_kind_is_the_latest_instruction_set_that_matters() -> None:
    assert kind_of(["avx512f", "sse2", "avx2"]) == "avx512f"
    assert kind_of(["asimd"]) == ""
    assert [kind_of(sets_up_to(kind)) for kind in INSTRUCTION_SETS] == list(INSTRUCTION_SETS)
    assert [rank_of(kind) for kind in ("", "AVX512", "avx2", AMX)] == [0, 0, 1, len(INSTRUCTION_SETS)]
    assert host_kind(AMX) == AMX


@pytest.mark.parametrize(
    ("kinds", "here", "chosen"),
    [
        ({"cpu": BF16, "cpu-avx2": "avx2"}, BF16, "cpu"),
        ({"cpu": BF16, f"cpu-{BF16}": BF16}, BF16, f"cpu-{BF16}"),
        ({"cpu": BF16, "cpu-avx2": "avx2"}, AMX, "cpu"),
        ({"cpu": BF16, "cpu-avx2": "avx2"}, "avx512f", "cpu-avx2"),
        ({"cpu": "", f"cpu-{AMX}": AMX}, BF16, "cpu"),
        ({"cpu": "", "cpu-avx2": "avx2"}, BF16, "cpu-avx2"),
        ({"cpu": BF16, "cpu-avx2": "avx2"}, "", "cpu"),
        ({f"cpu-{AMX}": AMX, f"cpu-{BF16}": BF16}, "avx2", f"cpu-{BF16}"),
    ],
)
def test_own_kind_goes_before_the_latest_that_lacks_nothing_here(kinds: dict[str, str], here: str, chosen: str) -> None:
    assert choose_folder(kinds, "cpu", here) == chosen


def test_each_host_takes_the_artifact_for_its_kind(root: Path, tiny_artifact: Artifact) -> None:
    version = tiny_artifact.manifest.version_id
    for kind, folder in ((AMX, "cpu"), (BF16, "cpu"), ("avx512f", "cpu-avx2"), ("avx2", "cpu-avx2")):
        for name in (version, "tiny-qa"):
            assert find_artifact(root, name, "cpu", kind=kind).path.name == folder
    assert [found.manifest.version_id for found in list_artifacts(root, "cpu")] == [version]
    earlier = find_artifact(root, version, "cpu", kind=AMX)
    assert (outgrown(earlier.manifest, AMX), outgrown(earlier.manifest, BF16)) == (True, False)
    pinned = find_artifact(root, version, "cpu", kind="avx2").digest
    assert find_artifact(root, version, "cpu", kind=AMX, manifest=pinned).path.name == "cpu-avx2"
    assert Loader("cpu", root, cpu_kind="avx2").load(version).summary["cpu_kind"] == "avx2"


def test_damage_counts_where_the_artifact_would_be_taken(root: Path, tiny_artifact: Artifact) -> None:
    version = tiny_artifact.manifest.version_id
    (root / "tiny-qa" / tiny_artifact.manifest.version / "cpu-avx2" / MANIFEST_NAME).write_text("{}")
    assert find_artifact(root, version, "cpu", kind=BF16).path.name == "cpu"
    with pytest.raises(ArtifactRefused, match="cannot be read"):
        find_artifact(root, version, "cpu", kind="avx2")


def test_artifact_for_another_kind_does_not_make_a_version_the_newest(root: Path, tiny_artifact: Artifact) -> None:
    manifest = tiny_artifact.manifest
    newer = {"version": "eeeeeeeeeeee", "created_at": "2999-01-01T00:00:00.000+00:00"}
    add_for_kind(tiny_artifact, root, "cpu", BF16, **newer)
    add_for_kind(tiny_artifact, root, f"cpu-{AMX}", AMX, created_at="2999-02-02T00:00:00.000+00:00")
    assert find_artifact(root, "tiny-qa", "cpu", kind=AMX).manifest.version == "eeeeeeeeeeee"
    far = RemoteRoot(f"file://{root}", root.parent / "cache")
    assert far.newest("tiny-qa", "cpu") == "tiny-qa@eeeeeeeeeeee" != manifest.version_id


def test_remote_root_gives_each_kind_its_own_and_the_cache_when_it_is_away(
    root: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    version = tiny_artifact.manifest.version_id
    far = RemoteRoot(f"file://{root}", tmp_path / "cache")
    for kind, folder in (("avx2", "cpu-avx2"), (BF16, "cpu"), (AMX, "cpu"), ("avx2", "cpu-avx2")):
        found = far.find(version, "cpu", kind=kind)
        assert (found.path.name, found.path.is_relative_to(tmp_path / "cache")) == (folder, True)
    add_for_kind(tiny_artifact, root, f"cpu-{AMX}", AMX)
    asked_for = far.find(version, "cpu", kind=AMX)
    assert asked_for.path.name == f"cpu-{AMX}"
    assert far.find(version, "cpu", asked_for.digest, kind="avx2") == asked_for
    shutil.rmtree(root)
    assert far.find(version, "cpu", kind="avx512f").path.name == "cpu-avx2"
    assert far.find(version, "cpu", kind=AMX, renew=True) == asked_for


def test_artifact_for_one_kind_is_told_from_one_that_serves(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=root.parent)
    monkeypatch.setattr("corelane.artifacts.instructions.CPUINFO", root / "cpuinfo")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for flags in (f"avx2 {BF16}", "avx2", f"avx2 {AMX}", "asimd"):
        (root / "cpuinfo").write_text(f"flags\t: {flags}\n")
        assert compiled(settings, "tiny-qa", "cpu") is not None
    found = compiled(settings, "tiny-qa", "cpu", "avx2")
    assert found is not None
    assert found.path.name == "cpu-avx2"
    assert compiled(settings, "tiny-qa", "cpu", AMX) is None
