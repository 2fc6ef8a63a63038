"""Compiled artifacts cached for a user of this machine, so that a new data folder need not compile again.

An entry is a folder named by everything that an artifact depends on (``key_of``), with the artifact's files. It is
written aside and renamed, so it is either complete or absent. Files read from it are compared with its manifest, so a
damaged entry counts as absent and is removed. A file of TorchScript is code: entries count only in a folder that this
user owns and other users cannot write. If all entries take more than ``MOST_BYTES``, those unused for longest are
removed. A cache that cannot be read or written is no error: the artifact is compiled.
"""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from corelane.artifacts.instructions import CPUINFO
from corelane.artifacts.locks import locked
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files, read_artifact
from corelane.errors import ArtifactRefused

#: Most bytes of all entries: forty of the built-in model, or a few large ones.
MOST_BYTES = 2 * 1000**3

#: Prefix of entries that are being written. An entry older than a day was left by a killed process.
ASIDE, ABANDONED_S = ".new-", 24 * 3600


def key_of(facts: Mapping[str, object]) -> str:
    """Return the name of the entry for these facts, in any order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """Return the maker's name for this CPU; empty if unknown."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


class ArtifactCache:
    """The entries below a folder."""

    def __init__(self, root: Path, most_bytes: int = MOST_BYTES) -> None:
        self._root = root
        self._most_bytes = most_bytes

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Hold an entry for the block. If several processes want it, one compiles and the others wait."""
        # If the folder cannot be written, or the file system has no locks, each process compiles for itself.
        with suppress(OSError):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._root / f"{key}.lock"):
            yield

    def fetch(self, key: str, version_id: str, target: str) -> Artifact | None:
        """Return the entry's artifact, with its files checked against their digests; None if there is no sound one."""
        entry = self._root / key
        try:
            if not (self._is_ours(self._root) and self._is_ours(entry)):
                return None
            artifact = read_artifact(entry)
            check_files(artifact)
        except (ArtifactRefused, OSError):
            shutil.rmtree(entry, ignore_errors=True)
            return None
        if (artifact.manifest.version_id, artifact.manifest.target) != (version_id, target):
            return None
        with suppress(OSError):
            os.utime(entry)
        return artifact

    def keep(self, key: str, artifact: Artifact) -> None:
        """Copy an artifact's files into an entry, replacing an existing one."""
        aside, entry = self._root / f"{ASIDE}{secrets.token_hex(6)}", self._root / key
        try:
            if not self._is_ours(self._root):
                return
            aside.mkdir(mode=0o700)
            copy_files(artifact, aside)
            shutil.copyfile(artifact.file(MANIFEST_NAME), aside / MANIFEST_NAME)
            shutil.rmtree(entry, ignore_errors=True)
            aside.rename(entry)
            self._drop_oldest(keeping=entry)
        except OSError:
            # A full disk, or a read-only one.
            pass
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _is_ours(self, folder: Path) -> bool:
        """Return whether only this user owns and may write to a folder; raises OSError if it does not exist."""
        found = folder.stat(follow_symlinks=False)
        return found.st_uid == os.geteuid() and not found.st_mode & 0o022

    def _drop_oldest(self, keeping: Path) -> None:
        """Remove what killed processes left, then the entries unused for longest until the rest fits."""
        left, now = self._most_bytes, time.time()
        folders = [(path.stat().st_mtime, path) for path in self._root.iterdir() if path.is_dir()]
        for used, path in sorted(folders, key=lambda each: (each[1] == keeping, each[0]), reverse=True):
            if path.name.startswith(ASIDE):
                if now - used > ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            left -= sum(file.stat().st_size for file in path.iterdir())
            if left < 0 and path != keeping:
                shutil.rmtree(path, ignore_errors=True)
                path.with_suffix(".lock").unlink(missing_ok=True)


def copy_files(artifact: Artifact, folder: Path) -> None:
    """Copy only the files in an artifact's manifest: a calibration belongs to its data folder."""
    for name in artifact.manifest.files:
        shutil.copyfile(artifact.file(name), folder / name)
