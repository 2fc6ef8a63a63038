"""The forms of files that items are read from and results written to: known by their names, checked by their bytes."""

import gzip
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO

from corelane.errors import InvalidInput

STANDARD = Path("-")

#: The ending of files that are packed by gzip, behind that of their contents.
PACKED = ".gz"


class Contents(StrEnum):
    """What a file holds, by the ending of its name; lines of JSON may also end in `.ndjson`."""

    LINES = ".jsonl"
    CSV = ".csv"
    TSV = ".tsv"
    PARQUET = ".parquet"
    NPY = ".npy"


ENDINGS = {each.value: each for each in Contents} | {".ndjson": Contents.LINES}

#: How files begin that are not taken for one another.
BEGINNINGS = {
    b"PAR1": Contents.PARQUET,
    b"\x93NUMPY": Contents.NPY,
    b"{": Contents.LINES,
    b"\x1f\x8b": PACKED,
    b"PK\x03\x04": ".zip or .xlsx",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


@dataclass(frozen=True, slots=True)
class Form:
    """What a file holds, and whether it is packed by gzip."""

    contents: Contents = Contents.LINES
    is_packed: bool = False


def form_of(path: Path) -> Form:
    """Return the form of a file by its ending: lines of JSON if it has none. Raises InvalidInput for other endings."""
    plain = path.name.lower().removesuffix(PACKED)
    is_packed, ending = plain != path.name.lower(), Path(plain).suffix
    if (ending or is_packed) and ending not in ENDINGS:
        raise InvalidInput(f"{path} has another ending than {', '.join(ENDINGS)}, with or without {PACKED}")
    return Form(ENDINGS.get(ending, Contents.LINES), is_packed)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read, unpacked. Raises InvalidInput if its bytes are not what its name says."""
    form = form_of(path)
    with ExitStack() as stack:
        stream: Any = sys.stdin.buffer if path == STANDARD else stack.enter_context(path.open("rb"))
        if form.is_packed:
            _check(path, stream, PACKED)
            packed, stream = stream, stack.enter_context(NamedTemporaryFile())
            try:
                shutil.copyfileobj(gzip.GzipFile(fileobj=packed), stream)
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise InvalidInput(f"{path} is damaged: {error}. Pack it again") from None
        _check(path, stream, form.contents)
        yield stream


def _check(path: Path, stream: BinaryIO, wanted: str) -> None:
    """Raise InvalidInput if a file does not begin as its kind does; go back to its beginning."""
    if not stream.seekable():
        return
    stream.seek(0)
    head = stream.read(8)
    stream.seek(0)
    found = next((kind for begin, kind in BEGINNINGS.items() if head.startswith(begin)), None)
    if found != wanted and (found is not None or wanted in (Contents.PARQUET, Contents.NPY, PACKED)):
        begins = f"begins like {found}" if found else f"does not begin like {wanted}"
        raise InvalidInput(f"{path} {begins}: name it by what it holds, or write it again")
