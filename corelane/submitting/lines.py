"""Cuts bytes into lines: each non-blank one with its number and where it ends. Pure.

A line that is too long is not held in memory.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Some editors write this before the first line.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: A line, from its first character that is not white space.
LINE = re.compile(rb"\S[^\n]*")


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is not blank; ``text`` is None if it was too long, ``end`` is where the next line begins."""

    number: int
    text: bytes | None
    end: int = 0


class LineCutter:
    """Cuts bytes that come in chunks of any size."""

    def __init__(self, most_bytes: int, start: int = 0, number: int = 0) -> None:
        """Begin at the offset ``start``, after ``number`` lines."""
        self._most = most_bytes
        self._offset = start
        self._line = bytearray()
        #: Number of lines that have ended.
        self.number = number
        #: Whether the current line is longer than allowed.
        self.is_long = False

    @property
    def held(self) -> int:
        """Return how many bytes of the current line are held."""
        return len(self._line)

    def feed(self, chunk: bytes) -> Iterator[InputLine]:
        """Yield the lines that end in a chunk."""
        first, last, begin = chunk.find(b"\n"), chunk.rfind(b"\n"), self._offset
        self._offset += len(chunk)
        if first < 0:
            self._add(chunk)
            return
        self._add(chunk[:first])
        yield from self._end(begin + first + 1)
        at = first + 1
        for found in LINE.finditer(chunk, at, last):
            self.number += chunk.count(b"\n", at, found.start())
            at = found.start()
            text = found[0] if len(found[0]) <= self._most else None
            yield InputLine(self.number + 1, text, begin + found.end() + 1)
        self.number += chunk.count(b"\n", at, last)
        if last > first:
            self.number += 1
        self._add(chunk[last + 1 :])

    def finish(self) -> Iterator[InputLine]:
        """Yield the last line, if it has no line feed at its end."""
        yield from self._end(self._offset)

    def _add(self, part: bytes) -> None:
        if self.is_long:
            return
        # A byte order mark may come before the first line, and only there.
        self._line += part if self._line or self.number == 0 else part.lstrip()
        if len(self._line) > self._most:
            self._line = self._line.removeprefix(BYTE_ORDER_MARK).lstrip()
            self.is_long = len(self._line) > self._most
            if self.is_long:
                self._line.clear()

    def _end(self, end: int) -> Iterator[InputLine]:
        number, text, is_long = self.number + 1, bytes(self._line), self.is_long
        text = text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
        self.number, self.is_long, self._line = number, False, bytearray()
        if is_long or text.strip():
            yield InputLine(number, None if is_long else text, end)


def cut_lines(chunks: Iterable[bytes], most_bytes: int, start: int = 0, number: int = 0) -> Iterator[InputLine]:
    """Yield lines from chunks; ``start`` is their offset, ``number`` how many lines precede them."""
    cutter = LineCutter(most_bytes, start, number)
    for chunk in chunks:
        yield from cutter.feed(chunk)
    yield from cutter.finish()
