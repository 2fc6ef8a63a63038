"""Read the body of an HTTP/1 request out of the bytes of its connection: so many bytes, or chunk by chunk."""

import re

from api.server.heads import CONTROL, NAME, Malformed

#: The size of a chunk, and what may follow it: extensions, which mean nothing here.
SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e]*)?")

#: The longest line with a chunk's size, and the most bytes of headers after the last chunk.
SIZE_BYTES, TRAILER_BYTES = 1024, 8 * 1024


class CountedBody:
    """A body whose head said how long it is."""

    def __init__(self, length: int) -> None:
        self._left = length

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Take what has come of the body out of the buffer; return it, and whether that was the end."""
        left = self._left
        if len(buffer) <= left:
            taken = bytes(buffer)
            buffer.clear()
        else:
            taken = bytes(buffer[:left])
            del buffer[:left]
        self._left = left - len(taken)
        return taken, not self._left


class ChunkedBody:
    """A body in chunks. What follows the last one is checked and dropped."""

    def __init__(self) -> None:
        #: Bytes of the chunk that are still to come; with its end, CRLF, before the next size.
        self._left = 0
        self._ends_chunk = self._in_trailer = False
        self._trailer_bytes = 0

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Take what has come of the body out of the buffer; return it, and whether that was the end.

        Raise Malformed.
        """
        taken = bytearray()
        while True:
            if self._left:
                part = buffer[: self._left]
                del buffer[: self._left]
                taken += part
                self._left -= len(part)
                if self._left:
                    return bytes(taken), False
                self._ends_chunk = True
            if self._ends_chunk:
                if not buffer.startswith(b"\r\n"):
                    if not b"\r\n".startswith(buffer):
                        raise Malformed("a chunk that is longer than its size")
                    return bytes(taken), False
                del buffer[:2]
                self._ends_chunk = False
            line = _take_line(buffer)
            if line is None:
                return bytes(taken), False
            if self._in_trailer:
                if not line:
                    return bytes(taken), True
                self._check_trailer(line)
            else:
                match = SIZE.fullmatch(line)
                if match is None:
                    raise Malformed("a chunk without a size")
                self._left = int(match[1], 16)
                self._in_trailer = not self._left

    def _check_trailer(self, line: bytes) -> None:
        name, colon, _ = line.partition(b":")
        self._trailer_bytes += len(line) + 2
        is_header = colon and NAME.fullmatch(name) and len(line.translate(None, CONTROL)) == len(line)
        if not is_header or self._trailer_bytes > TRAILER_BYTES:
            raise Malformed("headers after the body that are none, or too many")


def _take_line(buffer: bytearray) -> bytes | None:
    """Take a line without its CRLF; return None if it has not come to its end. Raise Malformed."""
    end = buffer.find(b"\n", 0, SIZE_BYTES)
    if end < 0:
        if len(buffer) >= SIZE_BYTES:
            raise Malformed("a line of a chunked body that is too long")
        return None
    line = bytes(buffer[:end])
    if not line.endswith(b"\r") or b"\r" in line[:-1]:
        raise Malformed("a line that does not end in CRLF")
    del buffer[: end + 1]
    return line[:-1]
