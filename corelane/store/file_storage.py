"""File storage: a folder on a disk, or any URL that fsspec reaches. It knows names and bytes only.

A file is written once, under a new name that is not given out before the file is complete. So an interrupted write
leaves nothing visible, and is deleted. Every call blocks, and raises StorageFailed if the storage fails.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

from corelane.errors import NotFound, SetupError, StorageFailed
from corelane.errors.extras import install_command

#: Sizes of the pieces in which files are read, and written to a disk, in bytes.
READ_BYTES, WRITE_BYTES = 256 * 1024, 1024 * 1024

#: Kinds of file systems whose folders must be made before they are written to.
WITH_FOLDERS = frozenset(("file", "local", "sftp", "ssh", "smb"))

#: What a check of a storage writes and deletes again.
PROBE = b"Corelane checks that it can write here."

#: Options for S3. Blocks have 8 MiB instead of s3fs' 50 MiB, as a file that is being written holds one in memory. A
#: storage that cannot be reached is noticed in seconds. Checksums are used only where S3 requires them: since botocore
#: 1.36 they are on by default, and many S3-compatible servers reject them (boto/boto3#4392).
S3_OPTIONS: dict[str, Any] = {
    "use_listings_cache": False,
    "default_block_size": 8 * 1024 * 1024,
    "config_kwargs": {
        "connect_timeout": 5,
        "read_timeout": 30,
        "retries": {"max_attempts": 2, "mode": "standard"},
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    },
}


class Storage:
    """Files by name."""

    def __init__(self, place: "DiskFiles | RemoteFiles", where: str) -> None:
        """``where`` names the place in errors."""
        self._place = place
        self.where = where

    def create(self, name: str) -> "Writer":
        """Create a file; the caller closes or discards it."""
        with self.errors():
            return Writer(self, name, self._place.create(name))

    def read(self, name: str) -> Iterator[bytes]:
        """Open a file at once, and yield its content in chunks; raise NotFound if it does not exist."""
        try:
            with self.errors():
                file = self._place.open(name)
        except FileNotFoundError:
            raise NotFound(f"the content of {name} is gone from the storage of files") from None
        return self._pieces(file)

    def read_at(self, name: str, start: int, most: int) -> bytes:
        """Read up to ``most`` bytes from an offset, fewer only at the end; raise NotFound if there is no such file."""
        try:
            with self.errors():
                return self._place.read_at(name, start, most)
        except FileNotFoundError:
            raise NotFound(f"{name} is gone from the storage of files") from None

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError), self.errors():
            self._place.delete(name)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files in a folder of the storage, without the folder's name."""
        try:
            with self.errors():
                return self._place.names(folder)
        except FileNotFoundError:
            return []

    def check(self) -> None:
        """Write a small file, read it back and delete it; raise StorageFailed or SetupError if that cannot be done."""
        name = f"check-{uuid4().hex}"
        writer = self.create(name)
        try:
            writer.write(PROBE)
            writer.close()
            found = self.read_at(name, 0, READ_BYTES)
        except NotFound:
            found = b""
        finally:
            with suppress(StorageFailed):
                self.delete(name)
        if found != PROBE:
            raise StorageFailed(f"the storage of files ({self.where}) does not return what was written")

    def abort(self, file: BinaryIO) -> None:
        """Stop writing a file."""
        self._place.abort(file)

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        with self.errors(), file:
            while piece := file.read(READ_BYTES):
                yield piece

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the exceptions of any kind of storage into StorageFailed; leave FileNotFoundError as it is."""
        try:
            yield
        except (StorageFailed, SetupError, FileNotFoundError):
            raise
        except PermissionError as error:
            sentence = (
                f"the storage of files ({self.where}) refuses access: {error}. Check the credentials of this process, "
                "and what they may do there"
            )
            raise StorageFailed(sentence) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFailed(f"the storage of files ({self.where}) is full") from error
            raise StorageFailed(f"the storage of files ({self.where}) fails: {error}") from error
        except Exception as error:
            sentence = f"the storage of files ({self.where}) fails: {type(error).__name__}: {error}"
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
        """Make the file visible. From now on it outlives this process."""
        with self._errors():
            self._file.close()

    def abort(self) -> None:
        """Stop writing, but delete nothing: another process may be writing a file of this name by now."""
        with suppress(Exception):
            self._storage.abort(self._file)

    def discard(self) -> None:
        """Delete what was written, if the storage can be reached; otherwise it is cleaned up later."""
        self.abort()
        with suppress(StorageFailed):
            self._storage.delete(self.name)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._storage.errors():
                yield
        except FileNotFoundError as error:
            raise StorageFailed(f"the storage of files ({self._storage.where}) does not take files: {error}") from error


class SyncedFile(FileIO):
    """A file whose bytes and name are on the disk once it is closed."""

    def close(self) -> None:
        """Flush the file and its folder to the disk, then close."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
                folder = os.open(Path(self.name).parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
            finally:
                super().close()


class DiskFiles:
    """A folder on a disk. Raises OSError if the disk fails, FileNotFoundError for a missing file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str) -> BinaryIO:
        """Create a file that is on the disk once it is closed."""
        path = self._folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cast(BinaryIO, BufferedWriter(SyncedFile(path, "xb"), WRITE_BYTES))

    def abort(self, file: BinaryIO) -> None:
        """Stop writing a file. It may be visible for a moment until it is deleted."""
        file.close()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._folder / name).open("rb")

    def read_at(self, name: str, start: int, most: int) -> bytes:
        """Read up to ``most`` bytes from an offset, fewer only at the end of the file."""
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read(most)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._folder / name).unlink()

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files in a folder."""
        return [path.name for path in (self._folder / folder).iterdir() if path.is_file()]


class RemoteFiles:
    """A folder at an fsspec URL. It connects with the first call."""

    def __init__(self, url: str) -> None:
        self._url = url

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            return reach(self._url, os.getpid())
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"files cannot be kept at {self._url}: {error}; run `{install_command('remote')}`"
            ) from None

    def create(self, name: str) -> BinaryIO:
        """Open a file for writing."""
        files, path = self._opened
        kinds = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
        if kinds & WITH_FOLDERS:
            files.makedirs(path, exist_ok=True)
        opened: BinaryIO = files.open(f"{path}/{name}", "wb")
        return opened

    def abort(self, file: BinaryIO) -> None:
        """Abort an upload. Where the storage supports this, no part of it was ever visible and none is left."""
        from fsspec.spec import AbstractBufferedFile

        if not isinstance(file, AbstractBufferedFile):
            file.close()
            return
        try:
            file.discard()
        finally:
            # Otherwise it is uploaded when it is garbage collected (fsspec 2026.9, AbstractBufferedFile.__del__).
            file.closed = True

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        files, path = self._opened
        opened: BinaryIO = files.open(f"{path}/{name}", "rb")
        return opened

    def delete(self, name: str) -> None:
        """Delete a file."""
        files, path = self._opened
        files.rm_file(f"{path}/{name}")

    def read_at(self, name: str, start: int, most: int) -> bytes:
        """Read bytes from an offset on."""
        files, path = self._opened
        try:
            return bytes(files.cat_file(f"{path}/{name}", start=start, end=start + most))
        except OSError as error:
            # S3 has no empty ranges: the offset is the end of the file, or beyond (s3fs 2026.9 keeps S3's own error).
            response = getattr(error.__cause__, "response", None) or {}
            if response.get("Error", {}).get("Code") == "InvalidRange":
                return b""
            raise

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files in a folder, bypassing fsspec's cache."""
        files, path = self._opened
        files.invalidate_cache()
        found = files.ls(f"{path}/{folder}".rstrip("/"), detail=True)
        return [str(each["name"]).rsplit("/", 1)[-1] for each in found if each["type"] == "file"]


def options_for(url: str) -> dict[str, Any]:
    """Return the options of fsspec for a URL."""
    return S3_OPTIONS if url.startswith(("s3://", "s3a://")) else {}


@lru_cache(maxsize=8)
def reach(url: str, _process: int) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it; raise ImportError or ValueError.

    All threads of a process share one file system, as an S3 client takes half a second of CPU time to make. fsspec's
    own cache has a file system for each thread.
    """
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url, skip_instance_cache=True, **options_for(url))
    return files, str(path).rstrip("/")


def open_storage(url: str | None, root: Path) -> Storage:
    """Open the storage of files: at a URL, or in a folder under ``root`` if there is no URL."""
    folder = root / "kept"
    return Storage(DiskFiles(folder), str(folder)) if url is None else Storage(RemoteFiles(url), url)
