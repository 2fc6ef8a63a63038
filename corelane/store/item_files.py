"""The files of large jobs' items: where they are, how they are written, and how they are read from any offset.

A job's ``file`` says where: ``JOB.jsonl`` is in the folder that API and keeper share, ``items/JOB.jsonl`` in the
storage of files. The latter may consist of several files, its parts: ``items/JOB.jsonl.0`` and so on. A line is an
item; in the file of an input that was read from a URL, it may be the error of an invalid line instead.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from corelane.domain.dispatch import Row
from corelane.domain.ids import new_job_id
from corelane.errors import NotFound, StorageFailed, StoreFull
from corelane.settings import Settings
from corelane.store.file_storage import DiskFiles, Storage, Writer, open_storage

#: The folder for items in the storage of files. A file whose name has a folder, this or another, is in that storage.
FOLDER = "items"
ELSEWHERE = f"{FOLDER}/"

#: Size of the pieces in which items are read, in bytes: each is one request to S3.
READ_BYTES = 512 * 1024

#: The error code and sentence of a line that is no valid item.
LineError = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ItemLine:
    """One line: an item's row and its tokens, or an error; and the offset where the line ends."""

    row: Row
    tokens: int
    end_bytes: int
    error: LineError | None = None


def encode_line(row: Row, tokens: int) -> bytes:
    """Encode an item as a line of a file."""
    return orjson.dumps((*row, tokens), option=orjson.OPT_APPEND_NEWLINE)


def encode_error(item_id: str | None, error: LineError) -> bytes:
    """Encode the error that replaces an invalid line. ``item_id`` is the item's id; None if it could not be read."""
    return orjson.dumps((item_id, None, error, 0), option=orjson.OPT_APPEND_NEWLINE)


def decode_line(text: bytes, end_bytes: int = 0) -> ItemLine:
    """Decode a line of a file: an item, or the error in its place."""
    item_id, beside, its_text, tokens = orjson.loads(text)
    if type(its_text) is list:
        return ItemLine((item_id, "", ""), tokens, end_bytes, (its_text[0], its_text[1]))
    return ItemLine((item_id, beside, its_text), tokens, end_bytes)


def part_name(file: str, part: int) -> str:
    """Return the name of one part of a file."""
    return f"{file}.{part}"


class ItemFiles:
    """All files of items. Every call blocks; raises StorageFailed if the storage fails."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.near = Storage(DiskFiles(settings.files_root), str(settings.files_root))
        self._far = open_storage(settings.files_url, settings.files_root)

    def place(self, file: str) -> Storage:
        """Return the storage that holds a file."""
        return self._far if "/" in file else self.near

    def read(self, file: str, parts: Sequence[int], start: int, most: int) -> bytes:
        """Read up to ``most`` bytes from an offset; empty at the end. ``parts`` are the file's part sizes, if any."""
        if not parts:
            return self.place(file).read_at(file, start, most)
        for part, size in enumerate(parts):
            if start < size:
                return self.place(file).read_at(part_name(file, part), start, min(most, size - start))
            start -= size
        return b""

    def lines(self, file: str, parts: Sequence[int], start: int = 0) -> Iterator[bytes]:
        """Yield lines from an offset on, with their line ends; raise NotFound if the file is gone."""
        return split_lines(lambda at: self.read(file, parts, at, READ_BYTES), start)

    def exists(self, file: str) -> bool:
        """Return whether a file exists."""
        try:
            self.place(file).read_at(file, 0, 1)
        except NotFound:
            return False
        return True

    def delete(self, job: str) -> None:
        """Delete a job's items in both places. What cannot be deleted now is deleted by the daily search for strays."""
        (self._settings.files_root / f"{job}.jsonl").unlink(missing_ok=True)
        with suppress(StorageFailed):
            file, part = f"{ELSEWHERE}{job}.jsonl", 0
            self._far.delete(file)
            while self.exists(name := part_name(file, part)):
                self._far.delete(name)
                part += 1

    def names(self) -> list[str]:
        """Return the names of the files that are in the storage of files."""
        return [f"{ELSEWHERE}{name}" for name in self._far.names(FOLDER)]

    @contextmanager
    def writing(self) -> Iterator["NewItems"]:
        """Yield a new job's file. On any error the file is deleted; raise StoreFull if the disk is full."""
        new = NewItems(self._settings, self._far)
        try:
            yield new
        except OSError as error:
            new.discard()
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreFull("the disk for large jobs is full; try again when some have finished") from error
            raise
        except BaseException:
            new.discard()
            raise


class NewItems:
    """The file of a job that is not submitted yet: on the disk that API and keeper share, or at a URL."""

    def __init__(self, settings: Settings, far: Storage) -> None:
        self._root = settings.files_root
        self._cell = settings.cell
        self._job = new_job_id(cell=self._cell)
        self._path: Path | None = None
        self._file: BinaryIO | Writer
        if settings.files_url is not None:
            self._file = far.create(f"{ELSEWHERE}{self._job}.jsonl")
            return
        self._path = self._root / f"{self._job}.jsonl"
        self._file = DiskFiles(self._root).create(self._path.name)

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._file.write(data)

    def finish(self) -> tuple[str, str]:
        """Complete the file, so that it outlives a power cut; return its job's id and the file's name.

        On a disk the id is made now, because ids contain the time of submission. An object in the storage keeps its
        first id, as it would have to be renamed.
        """
        if self._path is None:
            self._file.close()
            return self._job, f"{ELSEWHERE}{self._job}.jsonl"
        job = new_job_id(cell=self._cell)
        self._path = self._path.rename(self._root / f"{job}.jsonl")
        # This puts the new name on the disk too.
        self._file.close()
        return job, self._path.name

    def discard(self) -> None:
        """Delete the file."""
        if isinstance(self._file, Writer):
            self._file.discard()
        elif self._path is not None:
            self._path.unlink(missing_ok=True)
            # On a full disk what is still in memory cannot be written.
            with suppress(OSError):
                self._file.close()


def split_lines(read: Callable[[int], bytes], start: int) -> Iterator[bytes]:
    """Yield lines with their line ends; ``read`` returns bytes from an offset, and nothing at the end."""
    rest = b""
    while piece := read(start):
        start += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def step_lines(lines: Iterator[bytes], start: int, most_tokens: int, most_items: int) -> list[ItemLine]:
    """Take lines up to ``most_tokens`` or ``most_items``, or to the end; ``start`` is the first line's offset."""
    found: list[ItemLine] = []
    while most_tokens > 0 and len(found) < most_items and (text := next(lines, None)) is not None:
        start += len(text)
        found.append(decode_line(text, start))
        most_tokens -= found[-1].tokens
    return found


def parse_parts(text: Any) -> tuple[int, ...]:
    """Parse the sizes of a file's parts from a job's field."""
    return tuple(orjson.loads(text)) if text else ()
