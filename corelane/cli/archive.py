"""A backup as one file: a tar archive of what a data folder holds, with a manifest behind it.

The file has another name until it is complete. Only its user may read it, because it holds secrets. The manifest comes
last. It has the size and the SHA-256 of every file, and a digest of itself, so an archive that was cut off or changed
is noticed before any of it is used.
"""

import errno
import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any

import orjson

from corelane.cli.folders import create_private
from corelane.errors import SetupError

#: The format of new archives. An archive in a newer format is refused.
FORMAT = 1

MANIFEST = "manifest.json"

#: The first parts of names that an archive may have.
TOPS = frozenset(("redis", "files", "artifacts", "webhook-secret", "redis-password"))

#: The name of a file in the archive, and its path or its content.
Entry = tuple[str, Path | bytes]


class Summed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sum = file, hashlib.sha256()

    def read(self, most: int = -1, /) -> bytes:
        """Read, and add the bytes to the hash."""
        piece = self._file.read(most)
        self.sum.update(piece)
        return piece


def write_archive(target: Path, entries: Iterable[Entry], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files, and return the manifest; ``about`` is added to it.

    Raise SetupError, with nothing left behind, if the archive cannot be written. A file that no longer exists is left
    out. A file that still grows is written at its first size.
    """
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _explaining(target), create_private(aside) as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                there = (
                    (name, content) for name, content in entries if isinstance(content, bytes) or content.is_file()
                )
                manifest = {"format": FORMAT, **about, "files": {name: _add(tar, name, each) for name, each in there}}
                text = orjson.dumps(manifest)
                _add(tar, MANIFEST, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            file.flush()
            os.fsync(file.fileno())
        require_new(target)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return manifest


def require_new(target: Path) -> None:
    """Raise SetupError if there is a file of this name."""
    if target.exists():
        raise SetupError(f"{target} exists: name another file; a backup replaces none")


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes) -> tuple[int, str]:
    """Add a file; return its size and its SHA-256."""
    info = tarfile.TarInfo(name)
    info.mode = 0o600
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as opened:
        if isinstance(content, bytes):
            info.size = len(content)
        else:
            found = os.fstat(opened.fileno())
            info.size, info.mtime = found.st_size, found.st_mtime
        summed = Summed(opened)
        tar.addfile(info, summed)
    return info.size, summed.sum.hexdigest()


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """Write the files of an archive into a new folder, and return its manifest.

    Raise SetupError if the archive is incomplete or changed, or the disk is full. Files may then be left in the folder.
    """
    found: dict[str, tuple[int, str]] = {}
    try:
        file = archive.open("rb")
    except OSError as error:
        raise SetupError(f"{archive} cannot be read: {error.strerror}") from None
    try:
        with _explaining(folder), file, tarfile.open(fileobj=file, mode="r:") as tar:
            members = tar.getmembers()
            if not members or members[-1].name != MANIFEST:
                raise _damaged(archive, "its end is missing")
            for member in members:
                parts = PurePosixPath(member.name).parts
                is_ours = member is members[-1] or (parts and parts[0] in TOPS and ".." not in parts)
                if not is_ours or not member.isreg():
                    raise _damaged(archive, f"{member.name[:100]!r} is not to be in a backup")
            *files, end = members
            manifest = _read_manifest(archive, tar.extractfile(end))
            for member in files:
                found[member.name] = _write(folder / member.name, tar.extractfile(member), member.mtime)
    except (tarfile.TarError, EOFError) as error:
        raise _damaged(archive, str(error)) from None
    expected = {name: (size, digest) for name, (size, digest) in manifest["files"].items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise _damaged(archive, f"{name} is {'changed' if name in found else 'missing'}")
    return manifest


def _read_manifest(archive: Path, content: IO[bytes] | None) -> dict[str, Any]:
    digest, _, text = (b"" if content is None else content.read()).partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise _damaged(archive, "its manifest is changed")
    manifest: dict[str, Any] = orjson.loads(text)
    if manifest["format"] != FORMAT:
        raise SetupError(
            f"{archive} was written by Corelane {manifest.get('corelane')} in a newer format: restore it with that "
            "release"
        )
    return manifest


def _write(path: Path, content: IO[bytes] | None, modified_s: float) -> tuple[int, str]:
    """Write a new file; return its size and its SHA-256."""
    for parent in reversed(path.parents):
        parent.mkdir(mode=0o700, exist_ok=True)
    summed = Summed(content or BytesIO())
    with create_private(path) as file:
        shutil.copyfileobj(summed, file)
    os.utime(path, (modified_s, modified_s))
    return path.stat().st_size, summed.sum.hexdigest()


def _damaged(archive: Path, why: str) -> SetupError:
    return SetupError(f"{archive} is no whole backup: {why}. Nothing was restored; take another one")


@contextmanager
def _explaining(place: Path) -> Iterator[None]:
    """Turn an error of writing to ``place`` into a SetupError with a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise SetupError(f"there is no room for {place}: free some, or name another place") from None
        raise SetupError(f"{error.filename or place} cannot be used: {error.strerror or error}") from None
