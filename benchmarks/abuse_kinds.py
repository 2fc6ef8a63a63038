"""The kinds of abuse of ``abuse.py``: callers who leave, hold back or flood, and bodies cheap to send and dear to read.

Each kind is called with the target and a number of its own for each connection. Most leave without being answered;
those with dear bodies wait for their answer, so none of these is idle meanwhile.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.exceptions

from benchmarks.harness import is_quick

QUESTION = b'{"question": "What is the number?", "context": "The number is 7."}'

#: How long the service is left alone, and how long in a quick run, in seconds.
ALONE_S, QUICK_ALONE_S = 5.0, 0.5

#: How long a connection is held, and how long a stream is followed, in seconds.
HELD_S = 10.0

#: Requests sent ahead in one connection, and streams opened and reset in one connection.
AHEAD, RESETS = 900, 400

#: The part of a long line that is sent at a time.
TRICKLE = b"x" * 10


class Target:
    """A service, how to reach it, and one of its jobs, which stays open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url, self.host, self.port = url, parts.hostname or "127.0.0.1", parts.port or 80
        self.job = ""

    def request(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
        """Return a request's bytes."""
        size = len(body) if length is None else length
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {size}\r\n\r\n".encode() + body

    @asynccontextmanager
    async def wire(self, *, reset: bool = False) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection; close or reset it at the end, whatever is unread."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            if reset:
                writer.transport.abort()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def pipelined(target: Target, number: int) -> None:
    """Send many requests ahead in a connection and close it at once; every other one asks questions."""
    one = target.request("POST", "/v1/answers", QUESTION) if number % 2 else target.request("GET", "/v1/jobs")
    async with target.wire() as (_, writer):
        writer.write(one * AHEAD)
        with suppress(OSError):
            await asyncio.wait_for(writer.drain(), 1)


async def resets(target: Target, number: int) -> None:
    """Open streams of HTTP/2 and reset each at once."""
    wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    wire.initiate_connection()
    path, method = ("/v1/answers", "POST") if number % 2 else ("/v1/jobs", "GET")
    head = [(":method", method), (":scheme", "http"), (":authority", target.host), (":path", path)]
    async with target.wire() as (reader, writer):
        with suppress(OSError, h2.exceptions.ProtocolError):
            for opened in range(RESETS):
                stream = wire.get_next_available_stream_id()
                if method == "POST":
                    wire.send_headers(stream, [*head, ("content-type", "application/json")])
                    wire.send_data(stream, QUESTION, end_stream=True)
                else:
                    wire.send_headers(stream, head, end_stream=True)
                wire.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
                if opened % 20 == 0:
                    writer.write(wire.data_to_send())
                    await writer.drain()
            writer.write(wire.data_to_send())
            await asyncio.wait_for(reader.read(1 << 20), 1)


async def unread(target: Target, number: int) -> None:
    """Ask for a page and leave without reading it."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", "/openapi.json"))
        await asyncio.sleep(0.01)


async def not_reading(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for large pages one after the other, never read, and leave after a while."""
    async with target.wire() as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # what a stalled reader does
        writer.write(target.request("GET", "/openapi.json") * 50)
        await asyncio.sleep(3)


async def halves(target: Target, number: int) -> None:
    """Send half a head or half a body, wait a little, and leave."""
    whole = target.request("POST", "/v1/answers", QUESTION, 2 * len(QUESTION))
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(whole if number % 3 else whole[:40])
        await asyncio.sleep(0.5)


async def questions(target: Target, number: int) -> None:
    """Ask a question and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("POST", "/v1/answers", QUESTION))
        await writer.drain()


async def polls(target: Target, number: int) -> None:
    """Wait for a job that goes on, and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", f"/v1/jobs/{target.job}?wait=60"))
        await asyncio.sleep(0.2)


async def streams(target: Target, number: int) -> None:
    """Follow a job that goes on, and leave."""
    async with target.wire(reset=number % 2 == 0) as (_, writer):
        writer.write(target.request("GET", f"/v1/jobs/{target.job}/events"))
        await asyncio.sleep(0.2)


async def nothing(target: Target, number: int) -> None:  # noqa: ARG001
    """Leave the service alone, to measure what /livez takes on this machine without abuse."""
    await asyncio.sleep(QUICK_ALONE_S if is_quick() else ALONE_S)


async def cookies(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for a page with a long cookie of escapes, which are slow to unquote."""
    async with target.wire() as (reader, writer):
        cookie = b'Cookie: a="' + b"\\a" * 20_000 + b'"\r\nContent-Length'
        writer.write(target.request("GET", "/console/sign-in").replace(b"Content-Length", cookie))
        await reader.read(1000)


async def idle(target: Target, number: int) -> None:
    """Hold a connection on which nothing comes, or the head of a request that does not end."""
    async with target.wire() as (_, writer):
        writer.write(b"" if number % 2 else b"GET /livez HTTP/1.1\r\nA: ")
        await asyncio.sleep(HELD_S)


async def chunks(target: Target, number: int) -> None:
    """Send a body in chunks of one byte, or one chunk whose extension does not end."""
    head = target.request("POST", "/v1/jobs").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    part = b"1\r\nx\r\n" * 10_000 if number % 2 else b"a" * 60_000
    async with target.wire() as (_, writer):
        writer.write(head if number % 2 else head + b"1;")
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(HELD_S):
                while True:
                    writer.write(part)
                    await writer.drain()


async def upgrades(target: Target, number: int) -> None:  # noqa: ARG001
    """Ask for HTTP/2 by a header, and leave."""
    async with target.wire() as (reader, writer):
        writer.write(target.request("GET", "/livez").replace(b"Content-Length: 0", b"Upgrade: h2c"))
        await reader.read(1000)


def listed(entry: bytes, entries: int, name: bytes = b"items") -> bytes:
    """Return an object with a list of equal entries."""
    return b'{"%b": [%b]}' % (name, b",".join([entry] * entries))


def job(model: str, items: list[object], **options: object) -> bytes:
    """Return the body of a job for ``model``, the null engine's version of a task."""
    return json.dumps({"model": model, "items": items, "options": options}).encode()


def labels(chars: int) -> list[str]:
    """Return a hundred labels, each of ``chars`` characters."""
    return [f"{at:02}".ljust(chars, "a") for at in range(100)]


RANKING, ZERO_SHOT = "text-ranking", "zero-shot-classification"
TEN_THOUSAND = ["a"] * 10_000

#: Bodies by kind: where each is sent, and how it is made.
BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "numbers": ("/v1/jobs", partial(listed, b"1", 2_500_000)),
    "empty_lists": ("/v1/jobs", partial(listed, b"[]", 1_700_000)),
    "few_lists": ("/v1/jobs", partial(listed, b"[]", 240_000)),
    "unknown_fields": ("/v1/jobs", lambda: b"{%b}" % b",".join(b'"%x":1' % each for each in range(240_000))),
    "wrong_contexts": (
        "/v1/jobs",
        lambda: b'{"contexts": {%b}, "items": [1]}' % b",".join(b'"%x":1' % each for each in range(240_000)),
    ),
    "empty_questions": ("/v1/jobs", partial(listed, b'{"question":"","context":"c"}', 9_000)),
    "too_many": ("/v1/jobs", partial(listed, QUESTION, 60_000)),
    "hf_inputs": ("/v1/hf/question-answering", partial(listed, b'{"question":"","context":"c"}', 9_000, b"inputs")),
    "hf_numbers": ("/v1/hf/question-answering", partial(listed, b"1", 2_500_000, b"inputs")),
    "good_jobs": ("/v1/jobs", partial(listed, QUESTION, 10_000)),
    "embeddings": ("/v1/embeddings", partial(listed, b'"a"', 1_900_000, b"input")),
    "sentences": (
        "/v1/hf/sentence-similarity",
        lambda: b'{"inputs": %b}' % listed(b'"a"', 1_900_000, b'source_sentence": "a", "sentences'),
    ),
    "documents": ("/v1/rerank", partial(listed, b'"a"', 1_900_000, b'query": "a", "documents')),
    "hf_texts": ("/v1/hf/text-classification", partial(listed, b'"a"', 1_900_000, b"inputs")),
    "rankings": ("/v1/jobs", lambda: job(RANKING, [{"query": "a", "texts": TEN_THOUSAND}] * 150)),
    "good_rankings": ("/v1/jobs", lambda: job(RANKING, [{"query": "a", "texts": TEN_THOUSAND}] * 10)),
    "labelled": ("/v1/jobs", lambda: job(ZERO_SHOT, [{"text": "a"}] * 10_000, labels=labels(2))),
    "good_labelled": ("/v1/jobs", lambda: job(ZERO_SHOT, [{"text": "a"}] * 1000, labels=labels(900))),
    "own_labels": ("/v1/jobs", lambda: job(ZERO_SHOT, [{"text": "a", "labels": labels(60)}] * 1000)),
    "templates": (
        "/v1/jobs",
        lambda: job(ZERO_SHOT, [{"text": "a"}] * 200, labels=labels(1000), hypothesis_template="{}" * 500),
    ),
    "text_pair": (
        "/v1/jobs",
        lambda: job("text-classification", [{"text": "a", "text_pair": "pair " * 200_000}] * 7),
    ),
    "contexts": (
        "/v1/jobs",
        lambda: b'{"contexts": {%b}, "items": [1]}' % b",".join(b'"%x":"a"' % each for each in range(240_000)),
    ),
    "deep": ("/v1/jobs", partial(listed, b"[" * 900 + b"]" * 900, 270)),
    "form": ("/console/sign-in", lambda: b"&" * 8_000_000),
}


@cache
def body_of(kind: str) -> bytes:
    """Return the body of a kind."""
    return BODIES[kind][1]()


async def send_body(target: Target, number: int, kind: str) -> None:  # noqa: ARG001
    """Send a body, and wait for its answer."""
    async with target.wire() as (reader, writer):
        sent = target.request("POST", BODIES[kind][0], body_of(kind))
        writer.write(sent.replace(b"json", b"x-www-form-urlencoded", 1) if kind == "form" else sent)
        with suppress(ConnectionError):
            await reader.read(1000)


async def long_lines(target: Target, number: int) -> None:  # noqa: ARG001
    """Send a line of several MB that does not end, the last of it a few bytes at a time."""
    head = target.request("POST", "/v1/jobs", length=8_000_000).replace(b"application/json", b"application/x-ndjson")
    async with target.wire() as (_, writer):
        writer.write(head + b"x" * 7_900_000)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(HELD_S):
                while True:
                    writer.write(TRICKLE)
                    await writer.drain()
                    await asyncio.sleep(0)


Abuse = Callable[[Target, int], Awaitable[None]]

#: Each kind, and how many connections it makes; those of a kind in HELD are all open at the same time.
HELD = ("idle",)
KINDS: dict[str, tuple[Abuse, int]] = {
    "nothing": (nothing, 10),
    "cookies": (cookies, 200),
    "idle": (idle, 1200),
    "chunks": (chunks, 8),
    "upgrades": (upgrades, 400),
    "pipelined": (pipelined, 200),
    "unread": (unread, 2000),
    "not_reading": (not_reading, 200),
    "halves": (halves, 1000),
    "questions": (questions, 1000),
    "polls": (polls, 1000),
    "streams": (streams, 1000),
    **{kind: (partial(send_body, kind=kind), 20) for kind in BODIES},
    "long_lines": (long_lines, 8),
    # Last: without a proxy the service works on them for minutes.
    "resets": (resets, 200),
}
