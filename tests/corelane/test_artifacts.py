"""What is found below the artifact root, and what is refused, with the reason."""

import json
import shutil
from pathlib import Path

import pytest

from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import (
    MANIFEST_NAME,
    Artifact,
    check_manifest,
    digest_file,
    read_artifact,
)
from corelane.errors import ArtifactRefused


@pytest.fixture
def folder(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    manifest = tiny_artifact.manifest
    folder = tmp_path / manifest.name / manifest.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    return folder


def test_damaged_manifest_is_told_by_name_and_passed_over_for_the_newest(
    folder: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    other = folder.parent.with_name("eeeeeeeeeeee") / "cpu"
    shutil.copytree(folder, other)
    (other / MANIFEST_NAME).write_text('{"name": "tiny-qa"')
    with pytest.raises(ArtifactRefused, match="cannot be read"):
        find_artifact(tmp_path, "tiny-qa@eeeeeeeeeeee", "cpu")
    assert find_artifact(tmp_path, "tiny-qa", "cpu").manifest.version_id == tiny_artifact.manifest.version_id
    with pytest.raises(ArtifactRefused, match=f"corelane compile MODEL`, where need be with --data {tmp_path}$"):
        find_artifact(tmp_path / "artifacts", "tiny-qa", "cpu")
    with pytest.raises(ArtifactRefused, match=f"CORELANE_ARTIFACTS_DIR={tmp_path / 'elsewhere'}$"):
        find_artifact(tmp_path / "elsewhere", "tiny-qa", "cpu")


def test_other_target_is_told(folder: Path, tiny_artifact: Artifact, tmp_path: Path) -> None:
    version = tiny_artifact.manifest.version_id
    with pytest.raises(ArtifactRefused, match="it is compiled for cpu"):
        find_artifact(tmp_path, version, "inf2")
    folder.rename(folder.with_name("inf2"))
    with pytest.raises(ArtifactRefused, match="for target cpu, not"):
        find_artifact(tmp_path, version, "inf2")


@pytest.mark.parametrize("name", ["../x@1", "tiny-qa@..", "tiny-qa@../../x", "a b@1", "tiny-qa@"])
def test_name_that_leads_elsewhere_is_no_version(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactRefused, match="not a version"):
        find_artifact(tmp_path, name, "cpu")


def test_nothing_outside_the_root_is_loaded(folder: Path, tiny_artifact: Artifact, tmp_path: Path) -> None:
    version = tiny_artifact.manifest.version_id
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    (root / "tiny-qa" / tiny_artifact.manifest.version).mkdir(parents=True)
    folder.rename(elsewhere)
    (root / "tiny-qa" / tiny_artifact.manifest.version / "cpu").symlink_to(elsewhere)
    with pytest.raises(ArtifactRefused, match="leads out of the artifact root"):
        find_artifact(root, version, "cpu")


def test_manifest_that_was_changed_is_told_from_the_one_asked_for(folder: Path) -> None:
    artifact = read_artifact(folder)
    digest = digest_file(folder / MANIFEST_NAME)
    assert artifact.digest == digest
    check_manifest(artifact, digest)
    check_manifest(artifact, "")
    changed = json.loads((folder / MANIFEST_NAME).read_text()) | {"no_answer_threshold": 9.0}
    (folder / MANIFEST_NAME).write_text(json.dumps(changed))
    with pytest.raises(ArtifactRefused, match="not the one asked for"):
        check_manifest(read_artifact(folder), digest)
