"""Finds artifacts below a root: by model, by version, or all for a target."""

from collections.abc import Iterable
from pathlib import Path

from corelane.artifacts.instructions import AUTO_KIND, choose_folder, host_kind
from corelane.artifacts.manifest import (
    ARTIFACTS_NAME,
    MANIFEST_NAME,
    VERSION_ID,
    Artifact,
    artifact_folders,
    artifact_path,
    check_identity,
    read_artifact,
)
from corelane.errors import ArtifactRefused


def list_artifacts(root: Path, target: str) -> list[Artifact]:
    """Return one readable artifact of a target for each version below the root, newest last.

    Damaged manifests are left out. A version is as old as its first artifact: an artifact for another CPU kind does not
    make it the newest.
    """
    versions = (_readable(artifact_folders(parent, target)) for parent in root.glob("*/*"))
    first = [artifacts[0] for artifacts in versions if artifacts]
    return sorted(first, key=lambda artifact: artifact.manifest.created_at)


def find_artifact(root: Path, name: str, target: str, *, kind: str = AUTO_KIND, manifest: str = "") -> Artifact:
    """Find the artifact of ``name`` (newest version) or ``name@version``; raise ArtifactRefused with the reason.

    If there are several for CPU kinds, return the one whose manifest has this digest, else the one that suits ``kind``
    best.
    """
    if "@" in name:
        return _find_version(root, name, target, kind, manifest)
    for artifact in reversed(list_artifacts(root, target)):
        if artifact.manifest.name == name:
            return _take_one(artifact.path.parent, target, kind, manifest)
    raise ArtifactRefused(f"no artifact of {name} for target {target} below {root}; {how_to_make(root)}")


def _take_one(parent: Path, target: str, kind: str, manifest: str) -> Artifact:
    """Read the artifact of a version that suits a CPU; raises ArtifactRefused if that one cannot be read."""
    folders = artifact_folders(parent, target)
    if len(folders) < 2:
        return read_artifact(folders[0] if folders else parent / target)
    artifacts = {artifact.path.name: artifact for artifact in _readable(folders)}
    for artifact in artifacts.values():
        if manifest and artifact.digest == manifest:
            return artifact
    # An unreadable artifact is considered by the name of its folder: if it suits this host best, it is refused, not
    # skipped.
    kinds = {folder.name: folder.name.partition("-")[2] for folder in folders}
    kinds |= {name: artifact.manifest.cpu_kind for name, artifact in artifacts.items()}
    chosen = choose_folder(kinds, target, host_kind(kind))
    return artifacts.get(chosen) or read_artifact(parent / chosen)


def _readable(folders: Iterable[Path]) -> list[Artifact]:
    found = []
    for folder in folders:
        try:
            found.append(read_artifact(folder))
        except ArtifactRefused:
            continue
    return found


def how_to_make(root: Path) -> str:
    """Return advice on how to compile a model into this root."""
    place = f"--data {root.parent}" if root.name == ARTIFACTS_NAME else f"CORELANE_ARTIFACTS_DIR={root}"
    return f"make it with `corelane compile MODEL`, where need be with {place}"


def _find_version(root: Path, version_id: str, target: str, kind: str, manifest: str) -> Artifact:
    if not VERSION_ID.match(version_id):
        raise ArtifactRefused(f"{version_id[:120]!r} is not a version; versions look like qa-minilm@3f2a94c1d07b")
    name, _, version = version_id.partition("@")
    path = artifact_path(root, name, version, target)
    if not artifact_folders(path.parent, target):
        others = sorted(folder.parent.name for folder in path.parent.glob(f"*/{MANIFEST_NAME}"))
        where = f"it is compiled for {', '.join(others)}" if others else how_to_make(root)
        raise ArtifactRefused(f"no artifact of {version_id} for target {target} below {root}; {where}")
    artifact = _take_one(path.parent, target, kind, manifest)
    if not artifact.path.resolve().is_relative_to(root.resolve()):
        raise ArtifactRefused(f"{artifact.path} leads out of the artifact root; nothing from elsewhere is loaded")
    check_identity(artifact.manifest, version_id, target, artifact.path)
    return artifact
