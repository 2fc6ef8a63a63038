"""Read the head of an HTTP/1 request, strictly: what two programs could read in two ways is refused.

What is taken here, h11 takes too and reads in the same way; a test holds the two against each other. Stricter than h11:
lines end in CRLF alone, a header is one line, a body has one length, and the version is 1.0 or 1.1.
"""

import re
from dataclasses import dataclass, field

#: A method, and the name of a header.
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"

REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])")
NAME = re.compile(TOKEN)

#: What no head holds: all control characters but the tab and the ends of lines.
CONTROL = bytes([*range(9), 11, 12, *range(14, 32), 127])

#: Digits of a Content-Length: more bytes than that no disk holds.
MOST_DIGITS = 18

#: Headers that say how a request is read, or how its connection goes on.
FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade"})

#: Names that were checked, in lower case, by the name as it was sent. Callers send the same few.
_CHECKED: dict[bytes, bytes] = {}
MOST_CHECKED, CHECKED_BYTES = 1000, 64


class Malformed(Exception):
    """Raised for bytes that are no request; ``status`` answers them."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(slots=True)
class Head:
    """What a request says before its body. Names of headers are in lower case."""

    method: str
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    #: Bytes of the body.
    length: int = 0
    is_chunked: bool = False
    #: Whether the caller may send a further request after it.
    keeps: bool = True
    #: Whether the caller waits for a word before it sends the body.
    expects: bool = False
    #: What its Upgrade header asks for, in lower case; empty without one.
    upgrade: bytes = b""

    @property
    def has_body(self) -> bool:
        """Return whether bytes follow."""
        return self.is_chunked or self.length > 0


def read_head(head: bytes) -> Head:
    """Read a head, without the empty line at its end; raise Malformed."""
    lines = head.split(b"\r\n")
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or len(head.translate(None, CONTROL)) != len(head):
        raise Malformed("a control character, or a line that does not end in CRLF")
    match = REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise Malformed("no request line")
    method, target, version = match.groups()
    if version not in (b"1.1", b"1.0"):
        raise Malformed("neither HTTP/1.0 nor HTTP/1.1", 505)
    is_new = version == b"1.1"
    # As with Hypercorn, methods are in capitals, however they are sent.
    found = Head(method.decode().upper(), target, version.decode(), keeps=is_new)
    framing: list[tuple[bytes, bytes]] = []
    headers = found.headers
    for line in lines[1:]:
        sent, colon, value = line.partition(b":")
        name = _CHECKED.get(sent) or _check(sent)
        if not colon:
            raise Malformed("a header without a colon")
        header = (name, value.strip(b" \t"))
        headers.append(header)
        if name in FRAMING:
            framing.append(header)
    _read_framing(found, framing, is_new=is_new)
    return found


def check_part(part: bytearray, most: int) -> None:
    """Raise Malformed for the beginning of a head that no rest can mend; ``most`` is the longest head in bytes."""
    if len(part) >= most:
        raise Malformed("a head that is too long", 431)
    if part[0] <= 32 or part.count(b"\n") != part.count(b"\r\n"):
        raise Malformed("no request line, or a line that does not end in CRLF")


def _check(sent: bytes) -> bytes:
    """Return a header's name in lower case; raise Malformed if it is none."""
    if NAME.fullmatch(sent) is None:
        raise Malformed("a header whose name is none, or that goes on in the next line")
    name = sent.lower()
    if len(_CHECKED) < MOST_CHECKED and len(sent) <= CHECKED_BYTES:
        _CHECKED[sent] = name
    return name


def _read_framing(found: Head, framing: list[tuple[bytes, bytes]], *, is_new: bool) -> None:
    """Note where the body ends and how the connection goes on; raise Malformed where that is not certain."""
    hosts = lengths = 0
    for name, value in framing:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            lengths += 1
            if not value.isdigit() or len(value) > MOST_DIGITS:
                raise Malformed("a Content-Length that is no number")
            found.length = int(value)
        elif name == b"transfer-encoding":
            if found.is_chunked or value.lower() != b"chunked":
                raise Malformed("a Transfer-Encoding other than chunked", 501)
            found.is_chunked = True
        elif name == b"connection":
            found.keeps = found.keeps and b"close" not in _words(value)
        elif name == b"expect":
            found.expects = is_new and b"100-continue" in _words(value)
        else:
            found.upgrade = value.lower()
    if hosts > 1 or (is_new and not hosts):
        raise Malformed("no Host, or several")
    if lengths > 1 or (found.is_chunked and (lengths or not is_new)):
        raise Malformed("a body with two lengths")


def _words(value: bytes) -> list[bytes]:
    """Return the words of a header that lists them, in lower case."""
    return [word.strip() for word in value.lower().split(b",")]
