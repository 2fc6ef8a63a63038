"""The bytes of an input: bounded, unpacked, or read as a JSON document. Pure."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from corelane.errors import InputFailed
from corelane.submitting.ndjson import BYTE_ORDER_MARK

#: zlib's name for gzip's format.
GZIP = 16 + zlib.MAX_WBITS

#: Unpacked bytes that are held at a time: a chunk of a few kilobytes may unpack to gigabytes.
UNPACKED_BYTES = 1024 * 1024

#: Packed bytes that zlib gets at a time, and most members of one input: a member that bgzip wrote holds 64 kB.
PACKED_BYTES, MOST_MEMBERS = 8 * 1024, 100_000


def bounded(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield the chunks unchanged; raise InputFailed once they have more than ``most`` bytes."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise InputFailed(f"the input has more than {most:,} bytes (CORELANE_MAX_INPUT_BYTES)")
        yield chunk


def unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip, which may have several members; raise InputFailed if it is damaged or ends too early."""
    unpacker, is_whole, members = zlib.decompressobj(GZIP), False, 1
    # zlib copies the unread rest for each member, so it gets little at a time.
    for chunk in (each[at : at + PACKED_BYTES] for each in chunks for at in range(0, len(each), PACKED_BYTES)):
        rest = chunk
        while rest:
            if unpacker.eof:
                unpacker, members = zlib.decompressobj(GZIP), members + 1
            if members > MOST_MEMBERS:
                raise InputFailed(f"the input's gzip has more than {MOST_MEMBERS:,} members: pack it as one")
            try:
                piece = unpacker.decompress(rest, UNPACKED_BYTES)
            except zlib.error as error:
                raise InputFailed(f"the input is not gzip, as its name says: {error}") from None
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            is_whole = unpacker.eof
            if piece:
                yield piece
    if not is_whole:
        raise InputFailed("the input ends in the middle of its gzip")


def read_document(chunks: Iterable[bytes], most_bytes: int) -> Any:
    """Return a JSON document, read whole; raise InputFailed if it is not JSON, or has more than ``most_bytes``."""
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > most_bytes:
            raise InputFailed(
                f"the document has more than {most_bytes:,} bytes (CORELANE_MAX_BODY_BYTES): send it as lines (NDJSON)"
            )
    try:
        return orjson.loads(bytes(found).removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"the input is not JSON in UTF-8, as its name says: {error.msg}") from None
