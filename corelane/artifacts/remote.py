"""A remote root of artifacts, at an fsspec URL (s3://bucket/artifacts, file:///mnt/models), and its local cache.

A missing artifact is fetched into the cache. Its files go one by one into a folder aside, and each is compared with its
digest. Then the folder is moved into place, so that the cache never has half an artifact. A calibration beside them has
its own digest and may come and go, so it is copied each time. One process of a host fetches while others wait.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from corelane.artifacts.calibration import CALIBRATION_NAME, parse_calibration
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import AUTO_KIND, choose_folder, host_kind
from corelane.artifacts.locks import locked
from corelane.artifacts.manifest import (
    DIGEST_CHUNK_BYTES,
    MANIFEST_NAME,
    VERSION_ID,
    Artifact,
    Manifest,
    check_files,
    check_identity,
    read_artifact,
)
from corelane.errors import ArtifactRefused, LoadFailed, SetupError
from corelane.errors.extras import install_command
from corelane.log import get_logger

log = get_logger(__name__)

#: Pauses before a failed fetch is repeated, in seconds.
RETRY_PAUSES_S = (1.0, 4.0)


class RemoteRoot:
    """Artifacts at a URL, with the layout of a local root, and cached in ``cache`` once they were requested."""

    def __init__(self, url: str, cache: Path, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Connect with the first call, not here. That call raises SetupError if a package for the URL is missing.

        ``options`` are fsspec's options for this URL.
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
        """Return a version's artifact; fetch it unless the cache has all of it. Raises ArtifactRefused or LoadFailed.

        If there are several for CPU kinds, return the one whose digest is ``manifest``, else the one that suits
        ``kind`` best. A cached artifact is fetched again if the remote one has changed and either ``renew`` is set or
        its digest is not ``manifest``. If the remote side cannot be reached, the cached artifact is used.
        """
        if not VERSION_ID.match(version_id):
            raise ArtifactRefused(f"{version_id[:120]!r} is not a version; versions look like qa-minilm@3f2a94c1d07b")
        name, _, version = version_id.partition("@")
        folder = self._cache / name / version
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "fetch.lock"):
            cached = self._cached(version_id, target, manifest, kind)
            renew = renew or cached is None or (manifest or cached.digest) != cached.digest
            if cached is not None and not renew and _suits(cached, kind):
                self._renew_calibration(cached, version_id)
                return cached
            try:
                there, content = self._choose(version_id, target, manifest, kind)
            except (ArtifactRefused, LoadFailed) as error:
                if cached is None:
                    raise
                log.warning("artifact_not_renewed", version=version_id, detail=str(error))
                return cached
            is_new = renew and (cached is None or hashlib.sha256(content).hexdigest() != cached.digest)
            if cached is not None and cached.path.name == there.rpartition("/")[2] and not is_new:
                self._renew_calibration(cached, version_id)
                return cached
            return self._fetch(version_id, target, there, content)

    def newest(self, name: str, target: str) -> str | None:
        """Return the newest version of a model at the remote root, or None.

        A version is as old as its first artifact, as below a local root.
        """
        found: dict[str, tuple[bool, str]] = {}
        for folder, content in self._manifests(f"{name}/*", target).items():
            try:
                manifest = Manifest.model_validate_json(content)
            except ValidationError:
                continue
            if manifest.name == name:
                age = (not folder.endswith(f"/{target}"), manifest.created_at)
                found[manifest.version_id] = min(age, found.get(manifest.version_id, age))
        return max((created_at, version_id) for version_id, (_, created_at) in found.items())[1] if found else None

    def _cached(self, version_id: str, target: str, manifest: str, kind: str) -> Artifact | None:
        """Return the cached artifact that suits a host of this kind, if it is complete."""
        try:
            artifact = find_artifact(self._cache, version_id, target, kind=kind, manifest=manifest)
            check_files(artifact)
        except ArtifactRefused as error:
            log.debug("artifact_not_cached", version=version_id, detail=error.detail)
            return None
        return artifact

    def _manifests(self, parent: str, target: str) -> dict[str, bytes]:
        """Return the manifests for a target below a parent by folder, including those for CPU kinds."""
        found = {}
        for folder in (target, *(("cpu-*",) if target == "cpu" else ())):
            for path in self._reach(partial(self._files.glob, f"{self._path}/{parent}/{folder}/{MANIFEST_NAME}")):
                # A manifest that was removed after it was listed is left out.
                with suppress(FileNotFoundError):
                    found[str(path).rpartition("/")[0]] = self._read(path)
        return found

    def _choose(self, version_id: str, target: str, manifest: str, kind: str) -> tuple[str, bytes]:
        """Return the remote folder for a version's artifact, and its manifest."""
        parent = version_id.replace("@", "/")
        found = self._manifests(parent, target)
        if not found:
            paths = self._reach(lambda: self._files.glob(f"{self._path}/{parent}/*/{MANIFEST_NAME}"))
            others = sorted(str(path).split("/")[-2] for path in paths)
            where = f"it is there for {', '.join(others)}" if others else "nothing of it is there"
            raise ArtifactRefused(f"no artifact of {version_id} for target {target} at {self._url}; {where}")
        for folder, content in found.items():
            if hashlib.sha256(content).hexdigest() == manifest:
                return folder, content
        kinds = {folder: _kind_of(content) for folder, content in found.items()}
        folder = choose_folder(kinds, f"{next(iter(found)).rpartition('/')[0]}/{target}", host_kind(kind))
        return folder, found[folder]

    def _fetch(self, version_id: str, target: str, there: str, content: bytes) -> Artifact:
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            raise ArtifactRefused(f"the manifest at {self._url} of {version_id} cannot be read: {error}") from None
        check_identity(manifest, version_id, target, f"{there} at {self._url}")
        destination = self._cache / manifest.name / manifest.version / there.rpartition("/")[2]
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
        return read_artifact(destination)

    def _renew_calibration(self, artifact: Artifact, version_id: str) -> None:
        """Update a cached artifact's calibration, if the remote side can be reached."""
        there = f"{self._path}/{version_id.replace('@', '/')}/{artifact.path.name}"
        try:
            self._copy_calibration(there, artifact.path, artifact.manifest)
        except (LoadFailed, OSError) as error:
            log.warning("calibration_not_renewed", version=version_id, detail=str(error))

    def _copy_calibration(self, there: str, folder: Path, manifest: Manifest) -> None:
        """Copy the remote calibration, or remove a local one if there is none; raise ArtifactRefused if damaged.

        If the whole remote artifact is gone, the calibration is left as it is.
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
        """Call, and repeat while the remote side fails. Raises FileNotFoundError, LoadFailed or SetupError."""
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                return call()
            except (FileNotFoundError, SetupError):
                raise
            except Exception as error:
                # Each kind of remote file system has its own exceptions.
                if pause_s is None:
                    raise LoadFailed(f"{self._url} cannot be read: {type(error).__name__}: {error}") from error
                time.sleep(pause_s)
        return None


def _kind_of(content: bytes) -> str:
    """Return the CPU kind in a manifest; empty if it cannot be read."""
    try:
        return Manifest.model_validate_json(content).cpu_kind
    except ValidationError:
        return ""


def _suits(artifact: Artifact, kind: str) -> bool:
    """Return whether an artifact is for this kind of CPU, or for a target without kinds."""
    here = host_kind(kind)
    return artifact.manifest.target != "cpu" or not here or artifact.manifest.cpu_kind == here
