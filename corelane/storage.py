"""Where files lie: on a disk, or at any URL that fsspec reaches. Names and bytes, nothing of what they mean.

A file is written once, under a name that was never used before, and nobody knows the name before it is whole: so a
write that breaks off leaves nothing that can be seen, and is deleted. Every call blocks, and raises StorageFailed where
the storage does not do its work, whatever its kind.
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
from corelane.settings import Settings

#: Files are read in pieces of this size, in bytes.
READ_BYTES = 256 * 1024

#: Kinds of file systems whose folders must be made before they are written to.
WITH_FOLDERS = frozenset(("file", "local", "sftp", "ssh", "smb"))


class Place(Protocol):
    """What a kind of storage can do; it raises what it likes, but FileNotFoundError for a file that is not there."""

    def create(self, name: str) -> BinaryIO:
        """A file to write; it is there once it is closed."""

    def open(self, name: str) -> BinaryIO:
        """A file to read."""

    def delete(self, name: str) -> None:
        """A file is no more."""

    def names(self) -> list[str]:
        """All files there are."""


class Storage:
    """Files by name."""

    def __init__(self, place: Place, where: str) -> None:
        """``where`` is how the place is called in errors."""
        self._place = place
        self._where = where

    def create(self, name: str) -> "Writer":
        """A new file, to be closed or discarded."""
        with self.errors():
            return Writer(self, name, self._place.create(name))

    def read(self, name: str) -> Iterator[bytes]:
        """A file's content by pieces; opened at once. Raises NotFound if it is not there."""
        try:
            with self.errors():
                file = self._place.open(name)
        except FileNotFoundError:
            raise NotFound(f"the content of {name} is gone from the storage of files") from None
        return self._pieces(file)

    def delete(self, name: str) -> None:
        """A file is no more; it need not have been there."""
        with suppress(FileNotFoundError), self.errors():
            self._place.delete(name)

    def names(self) -> list[str]:
        """All files there are."""
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
        """The file is whole, and outlives this process."""
        with self._errors():
            self._file.close()

    def discard(self) -> None:
        """Leave nothing behind, as far as the storage can be reached; what stays is found later, as nobody knows it."""
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
    """A file whose bytes are on the disk once it is closed."""

    def close(self) -> None:
        """Wait for the disk, then close."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
            finally:
                super().close()


class DiskPlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> BinaryIO:
        """A file whose bytes are on the disk once it is closed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return cast(BinaryIO, BufferedWriter(SyncedFile(self._folder / name, "xb")))

    def open(self, name: str) -> BinaryIO:
        """A file to read."""
        return (self._folder / name).open("rb")

    def delete(self, name: str) -> None:
        """A file is no more."""
        (self._folder / name).unlink()

    def names(self) -> list[str]:
        """All files there are."""
        return [path.name for path in self._folder.iterdir()]


class RemotePlace:
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
        """A file to write."""
        files, path = self._opened
        kinds = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
        if kinds & WITH_FOLDERS:
            files.makedirs(path, exist_ok=True)
        opened: BinaryIO = files.open(f"{path}/{name}", "wb")
        return opened

    def open(self, name: str) -> BinaryIO:
        """A file to read."""
        files, path = self._opened
        opened: BinaryIO = files.open(f"{path}/{name}", "rb")
        return opened

    def delete(self, name: str) -> None:
        """A file is no more."""
        files, path = self._opened
        files.rm_file(f"{path}/{name}")

    def names(self) -> list[str]:
        """All files there are, as they stand there now."""
        files, path = self._opened
        files.invalidate_cache()
        return [str(name).rsplit("/", 1)[-1] for name in files.ls(path, detail=False)]


def open_storage(settings: Settings) -> Storage:
    """The storage of the settings: ``files_url``, or a folder beside the items of large jobs."""
    if settings.files_url is None:
        folder = settings.files_root / "kept"
        return Storage(DiskPlace(folder), str(folder))
    return Storage(RemotePlace(settings.files_url), settings.files_url)
