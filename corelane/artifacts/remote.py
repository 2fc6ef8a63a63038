"""A remote root of artifacts, at an fsspec URL (s3://bucket/artifacts, file:///mnt/models), and its local copies.

A missing artifact is copied into a temporary folder and compared with the digests of its manifest. Then the folder is
moved into place, so an interrupted download is never served. The artifact's calibration has its own digest and may come
and go, so it is copied each time. One process of a host copies while others wait.
"""

import hashlib
import shutil
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
from corelane.artifacts.manifest import (
    MANIFEST_NAME,
    VERSION_ID,
    Artifact,
    Manifest,
    check_files,
    check_identity,
    digest_file,
    read_artifact,
)
from corelane.errors import ArtifactRefused, LoadFailed, SetupError
from corelane.errors.extras import install_command
from corelane.log import get_logger

log = get_logger(__name__)

#: The temporary folder of an artifact that is copied, next to its final place. One process at a time uses it.
ASIDE = ".fetching"


class RemoteRoot:
    """Artifacts at a URL, with the layout of a local root, and copied to ``cache`` when they are requested."""

    def __init__(self, url: str, cache: Path, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Connect with the first call, not here. That call raises SetupError if a package for the URL is missing.

        ``options`` are fsspec's options for this URL.
        """
        self._url, self._options = url, options
        self._cache = cache

    @cached_property
    def _files(self) -> Any:
        """The file system at the URL; paths are relative to it."""
        try:
            from fsspec.core import url_to_fs
            from fsspec.implementations.dirfs import DirFileSystem

            files, path = url_to_fs(self._url, **self._options)
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"artifacts cannot be read from {self._url}: {error}; run `{install_command('remote')}`"
            ) from None
        return DirFileSystem(path, files)

    def find(
        self, version_id: str, target: str, manifest: str = "", *, renew: bool = False, kind: str = AUTO_KIND
    ) -> Artifact:
        """Return a version's artifact; copy it unless all of it is here. Raises ArtifactRefused or LoadFailed.

        If there are several for CPU kinds, return the one whose digest is ``manifest``, else the one that suits
        ``kind`` best. An artifact that is here is copied again if the remote one has changed and either ``renew`` is
        set or its digest is not ``manifest``. If the remote side cannot be reached, the one that is here is used.
        """
        from filelock import FileLock

        if not VERSION_ID.match(version_id):
            raise ArtifactRefused(f"{version_id[:120]!r} is not a version; versions look like qa-minilm@3f2a94c1d07b")
        parent = version_id.replace("@", "/")
        (self._cache / parent).mkdir(parents=True, exist_ok=True)
        with FileLock(self._cache / parent / "fetch.lock"):
            here = self._cached(version_id, target, manifest, kind)
            renew = renew or here is None or manifest not in ("", here.digest)
            if here is not None and not renew and _suits(here, kind):
                self._renew_calibration(here, parent)
                return here
            try:
                folder, content = self._choose(version_id, target, manifest, kind)
            except (ArtifactRefused, LoadFailed) as error:
                if here is None:
                    raise
                log.warning("artifact_not_renewed", version=version_id, detail=str(error))
                return here
            is_new = renew and (here is None or hashlib.sha256(content).hexdigest() != here.digest)
            if here is not None and here.path.name == folder and not is_new:
                self._renew_calibration(here, parent)
                return here
            return self._fetch(version_id, target, folder, content)

    def newest(self, name: str, target: str) -> str | None:
        """Return the newest version of a model at the remote root, or None.

        A version is as old as its first artifact, as below a local root.
        """
        found: dict[str, tuple[bool, str]] = {}
        for folder, content in self._manifests(f"{name}/*", target).items():
            with suppress(ValidationError):
                manifest = Manifest.model_validate_json(content)
                age = (not folder.endswith(f"/{target}"), manifest.created_at)
                if manifest.name == name:
                    found[manifest.version_id] = min(age, found.get(manifest.version_id, age))
        return max((created_at, version_id) for version_id, (_, created_at) in found.items())[1] if found else None

    def _cached(self, version_id: str, target: str, manifest: str, kind: str) -> Artifact | None:
        """Return the artifact here that suits a host of this kind, if it is complete."""
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
            for path in self._reach(partial(self._files.glob, f"{parent}/{folder}/{MANIFEST_NAME}")):
                # A manifest that was removed after it was listed is left out.
                with suppress(FileNotFoundError):
                    found[str(path).rpartition("/")[0]] = self._read(path)
        return found

    def _choose(self, version_id: str, target: str, manifest: str, kind: str) -> tuple[str, bytes]:
        """Return the name of the remote folder with a version's artifact, and its manifest."""
        parent = version_id.replace("@", "/")
        found = {path.rpartition("/")[2]: content for path, content in self._manifests(parent, target).items()}
        if not found:
            paths = self._reach(lambda: self._files.glob(f"{parent}/*/{MANIFEST_NAME}"))
            others = sorted(str(path).split("/")[-2] for path in paths)
            where = f"it is there for {', '.join(others)}" if others else "nothing of it is there"
            raise ArtifactRefused(f"no artifact of {version_id} for target {target} at {self._url}; {where}")
        for folder, content in found.items():
            if hashlib.sha256(content).hexdigest() == manifest:
                return folder, content
        kinds = {folder: _kind_of(content) for folder, content in found.items()}
        folder = choose_folder(kinds, target, host_kind(kind))
        return folder, found[folder]

    def _fetch(self, version_id: str, target: str, folder: str, content: bytes) -> Artifact:
        """Copy an artifact whose manifest is ``content``, check it, and move it into place."""
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            raise ArtifactRefused(f"the manifest at {self._url} of {version_id} cannot be read: {error}") from None
        there = f"{version_id.replace('@', '/')}/{folder}"
        check_identity(manifest, version_id, target, f"{there} at {self._url}")
        destination = self._cache / there
        aside = destination.with_name(ASIDE)
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir()
            for file, digest in manifest.files.items():
                if Path(file).name != file or file in (".", ".."):
                    raise ArtifactRefused(f"the manifest of {version_id} names {file!r}, which is no file of it")
                self._reach(partial(self._files.get_file, f"{there}/{file}", str(aside / file)))
                if digest_file(aside / file) != digest:
                    raise ArtifactRefused(f"{there}/{file} at {self._url} is damaged: its digest is not the manifest's")
            (aside / MANIFEST_NAME).write_bytes(content)
            self._copy_calibration(there, aside, manifest)
            shutil.rmtree(destination, ignore_errors=True)
            aside.rename(destination)
        except FileNotFoundError as error:
            raise ArtifactRefused(f"{error} is missing at {self._url}; upload the artifact again") from None
        except OSError as error:
            raise LoadFailed(f"{version_id} cannot be kept in {self._cache}: {error}") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        log.info("artifact_fetched", version=version_id, url=self._url)
        return read_artifact(destination)

    def _renew_calibration(self, artifact: Artifact, parent: str) -> None:
        """Update the calibration of an artifact that is here, if the remote side can be reached."""
        try:
            self._copy_calibration(f"{parent}/{artifact.path.name}", artifact.path, artifact.manifest)
        except (LoadFailed, OSError) as error:
            log.warning("calibration_not_renewed", version=artifact.manifest.version_id, detail=str(error))

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
        aside = path.with_name(f".{path.name}")
        aside.write_bytes(content)
        aside.replace(path)

    def _read(self, path: str) -> bytes:
        return bytes(self._reach(lambda: self._files.cat_file(path)))

    def _reach(self, call: Callable[[], Any]) -> Any:
        """Call the file system, which itself retries; raises FileNotFoundError, LoadFailed or SetupError."""
        try:
            return call()
        except (FileNotFoundError, SetupError):
            raise
        except Exception as error:
            # Each kind of remote file system has its own exceptions.
            raise LoadFailed(f"{self._url} cannot be read: {type(error).__name__}: {error}") from error


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
