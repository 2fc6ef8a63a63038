"""Bodies that are packed by gzip: they are unpacked as they are read, in small pieces, within the bounds of a body."""

import asyncio
import zlib
from collections.abc import Mapping

from starlette.types import Message, Receive, Scope

from corelane.errors import CorelaneError, InvalidInput, NotJson, TooLarge

#: Most bytes of one piece.
PIECE_BYTES = 64 * 1024

#: zlib's name for gzip's format.
GZIP = 16 + zlib.MAX_WBITS


def unpack(
    scope: Scope, headers: Mapping[str, str], source: Receive, too_large: TooLarge, most_bytes: int
) -> tuple[Receive, CorelaneError | None]:
    """Return a source of a request's unpacked body, and an error if the body's coding is unknown.

    The scope's headers become those of a plain body of unknown length.
    """
    coding = headers["content-encoding"].strip().lower()
    if coding in ("", "identity"):
        return source, None
    if coding not in ("gzip", "x-gzip"):
        return source, NotJson(
            f"the body is packed as `{coding[:100]}`: send it as it is, or packed by gzip with the header "
            "`Content-Encoding: gzip`"
        )
    others = [pair for pair in scope["headers"] if pair[0] not in (b"content-encoding", b"content-length")]
    scope["headers"] = [*others, (b"transfer-encoding", b"chunked")]
    return unpacked(source, too_large, most_bytes), None


def unpacked(source: Receive, too_large: TooLarge, most_bytes: int) -> Receive:
    """Return a source that unpacks a body. It raises InvalidInput, or ``too_large`` after ``most_bytes`` packed bytes.

    The reader of the source bounds the unpacked bytes.
    """
    unpacker, packed, taken, has_more, is_full = zlib.decompressobj(GZIP), b"", 0, True, False

    async def receive() -> Message:
        nonlocal packed, taken, has_more, is_full
        if not (packed or is_full):
            message = await source()
            if message["type"] != "http.request":
                return message
            packed, has_more = message.get("body", b""), message.get("more_body", False)
            taken += len(packed)
            if taken > most_bytes:
                raise too_large
        try:
            piece = unpacker.decompress(packed, PIECE_BYTES)
        except zlib.error:
            raise InvalidInput("the body is not gzip, as its header `Content-Encoding` says") from None
        packed, is_full = unpacker.unconsumed_tail, len(piece) == PIECE_BYTES
        is_last = not (has_more or packed or is_full)
        if unpacker.unused_data or (is_last and not unpacker.eof):
            wrong = "goes on after" if unpacker.unused_data else "breaks off before"
            raise InvalidInput(f"the body {wrong} the end of its gzip: pack it as one, and send all of it")
        # Without this a body that was received already would be unpacked before any other request runs.
        await asyncio.sleep(0)
        return {"type": "http.request", "body": piece, "more_body": not is_last}

    return receive
