"""Requests as bytes: what is taken is read as h11 reads it, and what could be read in two ways is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import h11
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from api.server.bodies import ChunkedBody, CountedBody
from api.server.heads import Malformed, check_part, read_head
from api.server.responses import Dates, write_head

END = b"\r\n\r\n"


@dataclass
class Read:
    """A request as a reader understood it."""

    method: bytes = b""
    target: bytes = b""
    version: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


def read_ours(sent: bytes, cuts: list[int]) -> tuple[list[Read], bool]:
    """Return the whole requests in some bytes, which come cut at these places, and whether the rest is refused."""
    found: list[Read] = []
    buffer, body, ended = bytearray(), None, False
    try:
        for piece in pieces(sent, cuts):
            buffer += piece
            while buffer and not ended:
                if body is None:
                    end = buffer.find(END)
                    if end < 0:
                        check_part(buffer, 4096)
                        break
                    head = read_head(bytes(buffer[:end]))
                    del buffer[: end + 4]
                    headers = [(name, v.lower() if name == b"transfer-encoding" else v) for name, v in head.headers]
                    last = Read(head.method.encode(), head.target, head.version.encode(), headers)
                    body = ChunkedBody() if head.is_chunked else CountedBody(head.length)
                    closes = not head.keeps
                taken, is_whole = body.take(buffer)
                last.body += taken
                if not is_whole:
                    break
                found.append(last)
                body, ended = None, closes
    except Malformed:
        return found, True
    return found, False


def read_h11(sent: bytes) -> tuple[list[Read], bool]:
    """Return the same as h11 sees it."""
    found: list[Read] = []
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(sent)
    last = Read()
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                names = [(name.lower(), value) for name, value in event.headers]
                last = Read(event.method.upper(), event.target, event.http_version, names)
            elif isinstance(event, h11.Data):
                last.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append(last)
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    return found, False
                connection.start_next_cycle()
            else:
                return found, False
    except h11.RemoteProtocolError:
        return found, True


def pieces(sent: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(sent), *(cut % (len(sent) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        yield sent[start:stop]


#: What requests are made of, right and wrong.
LINES = st.sampled_from(
    [b"GET / HTTP/1.1", b"POST /a?b=%20 HTTP/1.1", b"get /x HTTP/1.0", b"GET / HTTP/1.2", b"GET  / HTTP/1.1"]
)
HEADERS = st.sampled_from(
    [
        *(
            b"Host: a",
            b"host:a",
            b"Host : a",
            b"X:",
            b"X: a b\t",
            b" folded",
            b"no colon",
            b": none",
            b"X: \x01",
            b"X: \xff",
        ),
        *(
            b"Content-Length: 3",
            b"Content-Length: 3",
            b"Content-Length: +3",
            b"Content-Length: 3, 3",
            b"Content-Length: 0",
        ),
        *(b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked", b"Transfer-Encoding: gzip, chunked"),
        *(
            b"Connection: close",
            b"Connection: x, CLOSE",
            b"Connection: keep-alive",
            b"Expect: 100-continue",
            b"X: a\nb: c",
        ),
    ]
)
BODIES = st.sampled_from(
    [
        *(b"", b"abc", b"0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n", b"3\nabc\n0\n\n"),
        *(
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"-3\r\nabc\r\n",
            b"3\r\nabc0\r\n\r\n",
            b"0\r\nT u\r\n\r\n",
        ),
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    headers = draw(st.lists(HEADERS, max_size=4))
    if draw(st.booleans()):
        headers = [b"Host: a", *headers]
    return b"\r\n".join([draw(LINES), *headers, b"", b""]) + draw(BODIES)


@given(st.lists(requests(), min_size=1, max_size=3).map(b"".join), st.lists(st.integers(0, 500), max_size=6))
@example(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", [10])
def test_what_is_taken_is_what_h11_takes(sent: bytes, cuts: list[int]) -> None:
    ours, is_refused = read_ours(sent, cuts)
    theirs, _ = read_h11(sent)
    assert ours == theirs[: len(ours)]
    assert is_refused or len(ours) == len(theirs)


@given(st.binary(max_size=60), st.integers(0, 200), st.lists(st.integers(0, 500), max_size=4))
def test_strange_bytes_are_read_as_h11_reads_them_or_refused(strange: bytes, place: int, cuts: list[int]) -> None:
    sent = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    sent = sent[: place % len(sent)] + strange + sent[place % len(sent) :]
    ours, is_refused = read_ours(sent, cuts)
    theirs, _ = read_h11(sent)
    assert ours == theirs[: len(ours)]
    assert is_refused or len(ours) == len(theirs)


HOST = b"\r\nHost: a"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\n folded: x", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nX: a\nContent-Length: 5", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nX: a\rb", 400),
        (b"GET / HTTP/1.1" + HOST + b"\r\nX: a\0b", 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length : 5", 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length: 5\r\nContent-Length: 5", 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length: 0x5", 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nContent-Length: " + b"9" * 19, 400),
        (b"POST / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: identity", 501),
        (b"POST / HTTP/1.1" + HOST + b"\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
        (b"POST / HTTP/1.0" + HOST + b"\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.2" + HOST, 505),
        (b"GET / HTTP/2.0" + HOST, 505),
        (b"GET /" + HOST, 400),
        (b"GET /\xc3\xa9 HTTP/1.1" + HOST, 400),
    ],
)
def test_head_that_could_be_read_in_two_ways_is_refused(sent: bytes, status: int) -> None:
    with pytest.raises(Malformed) as refused:
        read_head(sent)
    assert refused.value.status == status


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\nHost: a\n\n", b"\r\n", b" GET", b"\x16\x03\x01", b"G" * 4096])
def test_beginning_that_no_rest_can_mend_is_refused_before_the_rest_comes(sent: bytes) -> None:
    with pytest.raises(Malformed):
        check_part(bytearray(sent), 4096)


@pytest.mark.parametrize(
    "sent", [b"3" * 16 + b"\r\n", b"3 \r\nabc", b"3;" + b"x" * 2000, b"0\r\n" + b"T: u\r\n" * 2000]
)
def test_chunks_are_bounded_and_strict(sent: bytes) -> None:
    with pytest.raises(Malformed):
        ChunkedBody().take(bytearray(sent))


@given(st.lists(st.tuples(st.binary(min_size=1), st.binary())))
def test_no_header_of_a_response_ends_its_line_early(headers: list[tuple[bytes, bytes]]) -> None:
    assume(not any(name.lower() == b"content-length" for name, _ in headers))
    try:
        head, _ = write_head(200, headers, "GET", "1.1", Dates().line(), keeps=True)
    except ValueError:
        assert any(set(name + value) & set(b"\r\n\0") for name, value in headers)
    else:
        kept = sum(name.lower() not in (b"connection", b"transfer-encoding") for name, _ in headers)
        ends = any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers)
        assert len(head.split(b"\r\n")) == 1 + kept + 2 + ends + 2
