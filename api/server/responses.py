"""Write an HTTP/1 response: the head with the application's headers and the date, and how its body ends."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

#: Says: send the body.
SEND_BODY = b"HTTP/1.1 100 Continue\r\n\r\n"

#: Responses without a body, whatever their headers say.
BODILESS = frozenset({204, 304})

STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


@dataclass(slots=True)
class Framing:
    """How the body of a response ends: after ``left`` bytes, with its last chunk, or with the connection."""

    #: Whether the connection may go on.
    keeps: bool
    left: int | None = None
    is_chunked: bool = False
    #: Whether a body is sent at all.
    has_body: bool = True

    @property
    def is_short(self) -> bool:
        """Return whether less was sent than its head said."""
        return self.has_body and bool(self.left)

    def frame(self, body: bytes, *, is_last: bool) -> bytes:
        """Return the bytes that send a part of the body; raise ValueError for more than the head said."""
        if not self.has_body:
            return b""
        if self.is_chunked:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return data + b"0\r\n\r\n" if is_last else data
        if self.left is not None:
            self.left -= len(body)
            if self.left < 0:
                raise ValueError("the application sent more than its Content-Length")
        return body


class Dates:
    """The Date header, made once a second."""

    def __init__(self) -> None:
        self._at, self._line = 0, b""

    def line(self) -> bytes:
        """Return the header's line of now."""
        now = int(time.time())
        if now != self._at:
            self._at, self._line = now, b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
        return self._line


def write_head(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    method: str,
    version: str,
    date: bytes,
    *,
    keeps: bool,
) -> tuple[bytes, Framing]:
    """Return the bytes of a response's head, and how its body ends; ``keeps`` if the connection may go on.

    Raise ValueError for a header that would end its line early.
    """
    framing = Framing(keeps, has_body=method != "HEAD" and status not in BODILESS)
    parts = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for given, value in headers:
        name = given.lower()
        if name == b"content-length":
            framing.left = int(value)
        elif name == b"connection":
            framing.keeps = framing.keeps and b"close" not in value.lower()
            continue
        elif name == b"transfer-encoding":
            continue
        parts += (b"%b: %b\r\n" % (name, value),)
    parts.append(date)
    if framing.has_body and framing.left is None:
        framing.is_chunked = version == "1.1"
        framing.keeps = framing.keeps and framing.is_chunked
        if framing.is_chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
    if not framing.keeps:
        parts.append(b"connection: close\r\n")
    parts.append(b"\r\n")
    head = b"".join(parts)
    if head.count(b"\n") != len(parts) or head.count(b"\r") != len(parts) or b"\0" in head:
        raise ValueError("a header of a response would end its line early")
    return head, framing


def write_refusal(status: int, date: bytes) -> bytes:
    """Return a whole response that says no more than its status, and ends the connection."""
    head, _ = write_head(status, [(b"content-length", b"0")], "GET", "1.1", date, keeps=False)
    return head
