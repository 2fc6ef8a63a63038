"""File storage: a folder on a disk, or any URL that fsspec reaches. Names and bytes only.

A file is written once, under a new name that nobody knows before the file is complete. So an interrupted write leaves
nothing visible, and is deleted. Every call blocks, and raises StorageFailed if the storage fails.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from corelane.errors import NotFound, SetupError, StorageFailed
from corelane.errors.extras import install_command

#: Files are read in pieces of this size, in bytes.
READ_BYTES = 256 * 1024

#: Kinds of file systems whose folders must be made before they are written to.
WITH_FOLDERS = frozenset(("file", "local", "sftp", "ssh", "smb"))


class FileBackend(Protocol):
    """What a kind of storage can do. Errors are its own, except FileNotFoundError for a missing file."""

    def create(self, name: str) -> BinaryIO:
        """Open a file for writing; it exists once it is closed."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""

    def delete(self, name: str) -> None:
        """Delete a file."""

    def names(self) -> list[str]:
        """Return the names of all files."""


class Storage:
    """Files by name."""

    def __init__(self, place: FileBackend, where: str) -> None:
        """``where`` is how the place is called in errors."""
        self._place = place
        self._where = where

    def create(self, name: str) -> "Writer":
        """Create a file, to be closed or discarded."""
        with self.errors():
            return Writer(self, name, self._place.create(name))

    def read(self, name: str) -> Iterator[bytes]:
        """Open a file at once and return its content in chunks; raise NotFound if it does not exist."""
        try:
            with self.errors():
                file = self._place.open(name)
        except FileNotFoundError:
            raise NotFound(f"the content of {name} is gone from the storage of files") from None
        return self._pieces(file)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError), self.errors():
            self._place.delete(name)

    def names(self) -> list[str]:
        """Return the names of all files."""
        try:
            with self.errors():
                return self._place.names()
        except FileNotFoundError:
            return []

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        with self.errors(), file:
            while piece := file.read(READ_BYTES):
                yield piece

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what storage raises; each kind has exceptions of its own."""
        try:
            yield
        except (StorageFailed, SetupError, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFailed(f"the storage of files ({self._where}) is full") from error
            raise StorageFailed(f"the storage of files ({self._where}) fails: {error}") from error
        except Exception as error:
            sentence = f"the storage of files ({self._where}) fails: {type(error).__name__}: {error}"
            raise StorageFailed(sentence) from error


class Writer:
    """One new file: written, then closed, or discarded."""

    def __init__(self, storage: Storage, name: str, file: BinaryIO) -> None:
        self._storage = storage
        self.name = name
        self._file = file

    def write(self, data: bytes) -> None:
        """Add bytes."""
        with self._errors():
            self._file.write(data)

    def close(self) -> None:
        """Make the file visible; from now on it outlives this process."""
        with self._errors():
            self._file.close()

    def discard(self) -> None:
        """Delete what was written, if the storage can be reached; what remains is cleared up later."""
        with suppress(Exception):
            self._file.close()
        with suppress(StorageFailed):
            self._storage.delete(self.name)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._storage.errors():
                yield
        except FileNotFoundError as error:
            raise StorageFailed(f"the storage of files does not take {self.name}: {error}") from error


class SyncedFile(FileIO):
    """Create a file whose bytes are on the disk once it is closed."""

    def close(self) -> None:
        """Wait for the disk, then close."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
            finally:
                super().close()


class DiskFiles:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> BinaryIO:
        """Create a file whose bytes are on the disk once it is closed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return cast(BinaryIO, BufferedWriter(SyncedFile(self._folder / name, "xb")))

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._folder / name).open("rb")

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._folder / name).unlink()

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [path.name for path in self._folder.iterdir()]


class RemoteFiles:
    """A folder at an fsspec URL; nothing is reached for before something is asked."""

    def __init__(self, url: str) -> None:
        self._url = url

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(self._url)
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"files cannot be kept at {self._url}: {error}; run `{install_command('remote')}`"
            ) from None
        return files, str(path).rstrip("/")

    def create(self, name: str) -> BinaryIO:
        """Open a file for writing."""
        files, path = self._opened
        kinds = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
        if kinds & WITH_FOLDERS:
            files.makedirs(path, exist_ok=True)
        opened: BinaryIO = files.open(f"{path}/{name}", "wb")
        return opened

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        files, path = self._opened
        opened: BinaryIO = files.open(f"{path}/{name}", "rb")
        return opened

    def delete(self, name: str) -> None:
        """Delete a file."""
        files, path = self._opened
        files.rm_file(f"{path}/{name}")

    def names(self) -> list[str]:
        """Return the names of all files, not from a cache."""
        files, path = self._opened
        files.invalidate_cache()
        return [str(name).rsplit("/", 1)[-1] for name in files.ls(path, detail=False)]


def open_storage(url: str | None, root: Path) -> Storage:
    """Open the storage of files: at a URL, or without one a folder under ``root``."""
    folder = root / "kept"
    return Storage(DiskFiles(folder), str(folder)) if url is None else Storage(RemoteFiles(url), url)
