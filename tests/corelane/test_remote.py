"""A remote root by URL, and its cache: whole or not at all, and nothing that its manifest does not vouch for."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from corelane.artifacts.calibration import CALIBRATION_NAME, read_calibration, write_calibration
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files
from corelane.artifacts.remote import ASIDE, RemoteRoot
from corelane.errors import ArtifactRefused, LoadFailed, SetupError
from corelane.store.file_storage import options_for
from tests.tools.artifacts import CALIBRATION
from tests.tools.s3 import S3Server, settle
from workers.models.runners import Loader


@pytest.fixture
def far(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    """Make a folder that stands for a bucket, with one artifact."""
    manifest = tiny_artifact.manifest
    folder = tmp_path / "far" / manifest.name / manifest.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    return folder


@pytest.fixture
def root(far: Path, tmp_path: Path) -> RemoteRoot:
    return RemoteRoot(f"file://{tmp_path}/far", tmp_path / "cache")


def test_version_is_fetched_once_and_kept(root: RemoteRoot, far: Path, tiny_artifact: Artifact, tmp_path: Path) -> None:
    version = tiny_artifact.manifest.version_id
    found = root.find(version, "cpu")
    check_files(found)
    assert found.path.is_relative_to(tmp_path / "cache")
    shutil.rmtree(far)
    assert root.find(version, "cpu") == found


def test_loader_asks_the_remote_root_for_what_is_not_here(
    root: RemoteRoot, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    loader = Loader("cpu", tmp_path / "empty", root)
    assert loader.resolve("tiny-qa") == tiny_artifact.manifest.version_id
    runner = loader.load(tiny_artifact.manifest.version_id)
    assert runner.version == tiny_artifact.manifest.version_id
    runner.close()


def test_version_that_is_removed_while_the_newest_is_looked_for_is_passed_over(
    root: RemoteRoot, far: Path, tiny_artifact: Artifact
) -> None:
    going = far.parent.parent / "0123456789ab" / "cpu"
    going.mkdir(parents=True)
    (going / MANIFEST_NAME).symlink_to(going / "gone")
    assert root.newest("tiny-qa", "cpu") == tiny_artifact.manifest.version_id


def test_damaged_copy_is_fetched_again(root: RemoteRoot, tiny_artifact: Artifact) -> None:
    version = tiny_artifact.manifest.version_id
    file = root.find(version, "cpu").file("tokenizer.json")
    file.write_bytes(b"{}")
    check_files(root.find(version, "cpu"))


def test_processes_that_want_a_version_at_once_copy_it_once_and_all_get_it(
    far: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    version = tiny_artifact.manifest.version_id
    roots = [RemoteRoot(f"file://{tmp_path}/far", tmp_path / "cache") for _ in range(4)]
    with capture_logs() as logged, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda root: root.find(version, "cpu"), roots))
    assert {each.path for each in found} == {found[0].path}
    check_files(found[0])
    assert [line["event"] for line in logged].count("artifact_fetched") == 1


def test_copy_that_was_cut_is_not_served(root: RemoteRoot, far: Path, tiny_artifact: Artifact, tmp_path: Path) -> None:
    cut = tmp_path / "cache" / far.parent.relative_to(tmp_path / "far") / ASIDE
    shutil.copytree(far, cut)
    (cut / "tokenizer.json").write_bytes((far / "tokenizer.json").read_bytes()[:100])
    found = root.find(tiny_artifact.manifest.version_id, "cpu")
    check_files(found)
    assert (found.path.name, cut.exists()) == ("cpu", False)


def test_damaged_original_is_refused_and_nothing_kept(
    root: RemoteRoot, far: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    (far / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ArtifactRefused, match="its digest is not the manifest's"):
        root.find(tiny_artifact.manifest.version_id, "cpu")
    (far / "tokenizer.json").unlink()
    with pytest.raises(ArtifactRefused, match="is missing at"):
        root.find(tiny_artifact.manifest.version_id, "cpu")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_calibration_is_taken_as_it_stands_there_and_kept_when_that_is_away(
    root: RemoteRoot, far: Path, tiny_artifact: Artifact
) -> None:
    version, version_id = tiny_artifact.manifest.version, tiny_artifact.manifest.version_id
    calibration = CALIBRATION.model_copy(update={"version": version}).signed()
    write_calibration(far, calibration)
    folder = root.find(version_id, "cpu").path
    assert read_calibration(folder, version) == calibration
    other = calibration.model_copy(update={"questions": 7}).signed()
    write_calibration(far, other)
    root.find(version_id, "cpu")
    assert read_calibration(folder, version) == other
    (far / CALIBRATION_NAME).unlink()
    root.find(version_id, "cpu")
    assert read_calibration(folder, version) is None
    write_calibration(far, other)
    root.find(version_id, "cpu")
    shutil.rmtree(far)
    root.find(version_id, "cpu")
    assert read_calibration(folder, version) == other


def test_damaged_calibration_there_is_refused_and_not_kept(
    root: RemoteRoot, far: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    version = tiny_artifact.manifest.version
    path = write_calibration(far, CALIBRATION.model_copy(update={"version": version}))
    path.write_text(path.read_text().replace('"questions": 100', '"questions": 101'))
    with pytest.raises(ArtifactRefused, match="is damaged"):
        root.find(tiny_artifact.manifest.version_id, "cpu")
    assert list((tmp_path / "cache").rglob(CALIBRATION_NAME)) == []


def test_what_is_not_there_or_is_for_something_else_is_told(root: RemoteRoot, tiny_artifact: Artifact) -> None:
    with pytest.raises(ArtifactRefused, match="nothing of it is there"):
        root.find("tiny-qa@ffffffffffff", "cpu")
    with pytest.raises(ArtifactRefused, match="it is there for cpu"):
        root.find(tiny_artifact.manifest.version_id, "inf2")
    with pytest.raises(ArtifactRefused, match="not a version"):
        root.find("../../etc@passwd", "cpu")


def test_manifest_can_name_no_file_elsewhere(root: RemoteRoot, far: Path, tiny_artifact: Artifact) -> None:
    manifest = json.loads((far / MANIFEST_NAME).read_text())
    manifest["files"]["../../../../escaped"] = "0" * 64
    (far / MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactRefused, match="no file of it"):
        root.find(tiny_artifact.manifest.version_id, "cpu")


def test_folder_with_another_version_is_refused(root: RemoteRoot, far: Path) -> None:
    far.parent.rename(far.parent.with_name("aaaaaaaaaaaa"))
    with pytest.raises(ArtifactRefused, match="holds tiny-qa@"):
        root.find("tiny-qa@aaaaaaaaaaaa", "cpu")


def test_root_that_cannot_be_read_is_told(root: RemoteRoot, far: Path, tiny_artifact: Artifact) -> None:
    (far / MANIFEST_NAME).unlink()
    (far / MANIFEST_NAME).mkdir()
    with pytest.raises(LoadFailed, match="cannot be read"):
        root.find(tiny_artifact.manifest.version_id, "cpu")


def test_kind_of_url_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"install -e '.*\[remote\]'"):
        RemoteRoot("nosuchkind://bucket", tmp_path).newest("tiny-qa", "cpu")


def test_artifact_compiled_again_there_is_fetched_when_it_is_asked_for_anew(
    root: RemoteRoot, far: Path, tiny_artifact: Artifact
) -> None:
    version = tiny_artifact.manifest.version_id
    before = root.find(version, "cpu")
    changed = json.loads((far / MANIFEST_NAME).read_text()) | {"no_answer_threshold": 9.0}
    (far / MANIFEST_NAME).write_text(json.dumps(changed))
    assert root.find(version, "cpu") == root.find(version, "cpu", before.digest) == before
    after = root.find(version, "cpu", renew=True)
    assert (after.manifest.no_answer_threshold, after.digest == before.digest) == (9.0, False)
    assert root.find(version, "cpu", after.digest) == after
    shutil.rmtree(far)
    assert root.find(version, "cpu", renew=True) == root.find(version, "cpu", before.digest) == after


def test_bucket_of_s3_is_a_remote_root_and_shows_what_was_added_since(
    s3: str, s3_server: S3Server, far: Path, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    root = RemoteRoot(f"{s3}/artifacts", tmp_path / "cache", options_for(s3))
    assert root.newest("tiny-qa", "cpu") is None
    shutil.copytree(far.parents[2], s3_server.folder / s3.removeprefix("s3://") / "artifacts")
    settle()
    version = tiny_artifact.manifest.version_id
    assert root.newest("tiny-qa", "cpu") == version
    check_files(root.find(version, "cpu"))
