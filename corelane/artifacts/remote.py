"""A remote root of artifacts, named by an fsspec URL (s3://bucket/artifacts, file:///mnt/models), and its local cache.

What is not there yet is fetched into the cache: file by file into a folder aside, each compared with its digest, and
moved into place whole, so that the cache never holds half an artifact. A calibration beside them has a digest of its
own and comes and goes: it is taken as it stands there each time. One process of a host fetches, others wait.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from corelane.artifacts.calibration import CALIBRATION_NAME, parse_calibration
from corelane.artifacts.instructions import AUTO_KIND, choose_folder, host_kind
from corelane.artifacts.manifest import (
    DIGEST_CHUNK_BYTES,
    MANIFEST_NAME,
    VERSION_ID,
    Artifact,
    Manifest,
    artifact_path,
    check_files,
    check_identity,
    read_artifact,
)
from corelane.errors import ArtifactRefused, LoadFailed, SetupError
from corelane.errors.extras import install_command
from corelane.log import get_logger

log = get_logger(__name__)

#: Pauses before a fetch that failed is tried again, in seconds.
RETRY_PAUSES_S = (1.0, 4.0)

Found = TypeVar("Found")


class RemoteRoot:
    """Artifacts at a URL, laid out as below a local root, kept in ``cache`` once they were asked for."""

    def __init__(self, url: str, cache: Path, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Connect with the first call, not here. That call raises SetupError if the URL's kind needs a missing package.

        ``options`` are those of fsspec for this URL.
        """
        self._url, self._options = url, options
        self._cache = cache

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(self._url, **self._options)
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"artifacts cannot be read from {self._url}: {error}; run `{install_command('remote')}`"
            ) from None
        return files, str(path)

    @property
    def _files(self) -> Any:
        return self._opened[0]

    @property
    def _path(self) -> str:
        return self._opened[1]

    def find(
        self, version_id: str, target: str, manifest: str = "", *, renew: bool = False, kind: str = AUTO_KIND
    ) -> Artifact:
        """Return a version's artifact; fetch it unless the cache holds it whole. Raises ArtifactRefused or LoadFailed.

        Of several for CPU kinds it is the one whose digest is ``manifest``, else the one that suits ``kind`` best. A
        cached artifact is fetched again if the remote one has changed and either ``renew`` is set or its digest is
        not ``manifest``.
        """
        if not VERSION_ID.match(version_id):
            raise ArtifactRefused(f"{version_id[:120]!r} is not a version; versions look like qa-minilm@3f2a94c1d07b")
        name, _, version = version_id.partition("@")
        folder = self._choose(artifact_path(self._cache, name, version, target), version_id, manifest, renew, kind)
        destination = artifact_path(self._cache, name, version, folder)
        with _alone(destination):
            if destination.exists():
                try:
                    artifact = _read_cached(destination, version_id, target)
                except ArtifactRefused as error:
                    log.warning("cached_artifact_damaged", version=version_id, detail=error.detail)
                    shutil.rmtree(destination)
                else:
                    other = bool(manifest) and artifact.digest != manifest
                    if not ((renew or other) and self._has_another(artifact, version_id)):
                        self._renew_calibration(artifact, version_id)
                        return artifact
            self._fetch(version_id, target, destination)
        return _read_cached(destination, version_id, target)

    def newest(self, name: str, target: str) -> str | None:
        """Return the newest version of a model at the remote root, or None.

        A version is as old as the artifact that it had first, as below a local root.
        """
        found: dict[str, tuple[bool, str]] = {}
        for path in self._glob(f"{name}/*", target):
            # One that is not readable, or was removed since it was listed, is none.
            try:
                manifest = Manifest.model_validate_json(self._read(path))
            except (ValidationError, FileNotFoundError):
                continue
            if manifest.name == name:
                age = (_folder_of(path) != target, manifest.created_at)
                found[manifest.version_id] = min(age, found.get(manifest.version_id, age))
        return max((created_at, version_id) for version_id, (_, created_at) in found.items())[1] if found else None

    def _glob(self, parent: str, target: str) -> list[str]:
        """Return the paths of the manifests for a target below a parent, those for CPU kinds included."""
        folders = (target, *(("cpu-*",) if target == "cpu" else ()))
        return [
            str(path)
            for folder in folders
            for path in self._reach(partial(self._files.glob, f"{self._path}/{parent}/{folder}/{MANIFEST_NAME}"))
        ]

    def _choose(self, cached: Path, version_id: str, manifest: str, renew: bool, kind: str) -> str:
        """Return the folder to take a version's artifact from.

        What is cached is taken if it is exactly what is asked for. Else the remote side is asked what it has; if it
        cannot be reached, what is cached serves.
        """
        target, here = cached.name, host_kind(kind)
        if target != "cpu":
            return target
        kinds = {folder.name: folder.name.partition("-")[2] for folder in cached.parent.glob("cpu*")}
        with suppress(ArtifactRefused):
            kinds[target] = read_artifact(cached).manifest.cpu_kind if target in kinds else ""
        best = choose_folder(kinds, target, here) if kinds else target
        if kinds and not manifest and not renew and (not here or kinds[best] == here):
            return best
        name, _, version = version_id.partition("@")
        try:
            found = {_folder_of(path): path for path in self._glob(f"{name}/{version}", target)}
            if set(found) <= {target}:
                return target if found else best
            contents = {folder: self._read(path) for folder, path in found.items()}
        except (FileNotFoundError, LoadFailed) as error:
            log.warning("artifacts_not_listed", version=version_id, detail=str(error))
            return best
        for folder, content in contents.items():
            if manifest and hashlib.sha256(content).hexdigest() == manifest:
                return folder
        return choose_folder({folder: _kind_of(content) for folder, content in contents.items()}, target, here)

    def _fetch(self, version_id: str, target: str, destination: Path) -> None:
        name, _, version = version_id.partition("@")
        there = f"{self._path}/{name}/{version}/{destination.name}"
        content = self._manifest(there, version_id, target)
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            raise ArtifactRefused(f"the manifest at {self._url} of {version_id} cannot be read: {error}") from None
        check_identity(manifest, version_id, target, f"{self._url}/{name}/{version}/{destination.name}")
        aside = destination.with_name(f".{destination.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            for file, digest in manifest.files.items():
                if Path(file).name != file or file in (".", ".."):
                    raise ArtifactRefused(f"the manifest of {version_id} names {file!r}, which is no file of it")
                self._copy(f"{there}/{file}", aside / file, digest)
            (aside / MANIFEST_NAME).write_bytes(content)
            self._copy_calibration(there, aside, manifest)
            shutil.rmtree(destination, ignore_errors=True)
            aside.rename(destination)
        except OSError as error:
            raise LoadFailed(f"{version_id} cannot be kept in {self._cache}: {error}") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        log.info("artifact_fetched", version=version_id, url=self._url)

    def _has_another(self, artifact: Artifact, version_id: str) -> bool:
        """Return whether the remote root has a manifest that no cached artifact has; False if it cannot be reached."""
        try:
            there = f"{self._there(artifact)}/{MANIFEST_NAME}"
            return hashlib.sha256(self._read(there)).hexdigest() != artifact.digest
        except (FileNotFoundError, LoadFailed) as error:
            log.warning("artifact_not_renewed", version=version_id, detail=str(error))
            return False

    def _renew_calibration(self, artifact: Artifact, version_id: str) -> None:
        """Bring a cached artifact's calibration up to date, if the remote side can be reached."""
        try:
            self._copy_calibration(self._there(artifact), artifact.path, artifact.manifest)
        except (LoadFailed, OSError) as error:
            log.warning("calibration_not_renewed", version=version_id, detail=str(error))

    def _there(self, artifact: Artifact) -> str:
        """Return the place at the remote root of an artifact in the cache."""
        return f"{self._path}/{artifact.manifest.name}/{artifact.manifest.version}/{artifact.path.name}"

    def _copy_calibration(self, there: str, folder: Path, manifest: Manifest) -> None:
        """Make a folder's calibration what it is there, or none; raises ArtifactRefused if that one is damaged.

        Where the whole artifact is gone, that says nothing of its calibration.
        """
        source, path = f"{there}/{CALIBRATION_NAME}", folder / CALIBRATION_NAME
        try:
            content = self._read(source)
        except FileNotFoundError:
            if self._reach(lambda: self._files.exists(f"{there}/{MANIFEST_NAME}")):
                path.unlink(missing_ok=True)
            return
        parse_calibration(content, manifest.version, f"{source} at {self._url}")
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(content)
        aside.replace(path)

    def _manifest(self, there: str, version_id: str, target: str) -> bytes:
        try:
            return self._read(f"{there}/{MANIFEST_NAME}")
        except FileNotFoundError:
            paths = self._reach(lambda: self._files.glob(f"{there.rpartition('/')[0]}/*/{MANIFEST_NAME}"))
            others = sorted(str(path).split("/")[-2] for path in paths)
            where = f"it is there for {', '.join(others)}" if others else "nothing of it is there"
            raise ArtifactRefused(f"no artifact of {version_id} for target {target} at {self._url}; {where}") from None

    def _copy(self, source: str, destination: Path, digest: str) -> None:
        def copy() -> str:
            found = hashlib.sha256()
            with self._files.open(source, "rb") as stream, destination.open("wb") as out:
                while chunk := stream.read(DIGEST_CHUNK_BYTES):
                    found.update(chunk)
                    out.write(chunk)
            return found.hexdigest()

        try:
            found = self._reach(copy)
        except FileNotFoundError:
            raise ArtifactRefused(f"{source} is missing at {self._url}; upload the artifact again") from None
        if found != digest:
            raise ArtifactRefused(f"{source} at {self._url} is damaged: its digest is not the manifest's")

    def _read(self, path: str) -> bytes:
        return bytes(self._reach(lambda: self._files.cat_file(path)))

    def _reach(self, call: Callable[[], Any]) -> Any:
        """Call; try again while the remote side fails. Raises FileNotFoundError, LoadFailed or SetupError."""
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                return call()
            except (FileNotFoundError, SetupError):
                raise
            except Exception as error:
                # Each kind of remote file system has exceptions of its own.
                if pause_s is None:
                    raise LoadFailed(f"{self._url} cannot be read: {type(error).__name__}: {error}") from error
                time.sleep(pause_s)
        return None


def _folder_of(path: str) -> str:
    """Return the name of the folder that a manifest lies in."""
    return path.split("/")[-2]


def _kind_of(content: bytes) -> str:
    """Return the CPU kind that a manifest names; empty if it cannot be read."""
    try:
        return Manifest.model_validate_json(content).cpu_kind
    except ValidationError:
        return ""


def _read_cached(folder: Path, version_id: str, target: str) -> Artifact:
    """Read an artifact in the cache; raises ArtifactRefused if it is damaged or of another version."""
    artifact = read_artifact(folder)
    check_identity(artifact.manifest, version_id, target, folder)
    check_files(artifact)
    return artifact


@contextmanager
def _alone(destination: Path) -> Iterator[None]:
    """One process of this host at a time for one artifact."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with (destination.parent / f".{destination.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
