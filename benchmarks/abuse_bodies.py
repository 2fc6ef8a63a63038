"""Bodies that are cheap to send and dear to read, and streams of the console: kinds of abuse for ``abuse.py``.

Each request is answered before the next one of its connection is sent, so none of them is idle meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache, partial
from typing import Protocol

ITEM = b'{"question": "What is the number?", "context": "The number is 7."}'

#: A stream of the console is followed for this, in seconds.
FOLLOWED_S = 10.0

#: The part of a long line that is sent at a time.
TRICKLE = b"x" * 10

NDJSON = b"application/x-ndjson"


class Target(Protocol):
    """What is abused: a service, and a job of its that stays open."""

    job: str

    def request(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
        """Return a request's bytes."""

    def wire(self) -> AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection."""


def listed(entry: bytes, entries: int, name: bytes = b"items") -> bytes:
    """Return an object with a list of so many equal entries."""
    return b'{"%b": [%b]}' % (name, b",".join([entry] * entries))


#: Bodies by kind: where each is sent, and how it is made.
BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "numbers": ("/v1/jobs", partial(listed, b"1", 2_500_000)),
    "empty_lists": ("/v1/jobs", partial(listed, b"[]", 1_700_000)),
    "few_lists": ("/v1/jobs", partial(listed, b"[]", 240_000)),
    "no_objects": ("/v1/jobs", partial(listed, b"1", 9_000)),
    "unknown_fields": ("/v1/jobs", lambda: b"{%b}" % b",".join(b'"%x":1' % each for each in range(240_000))),
    "wrong_contexts": (
        "/v1/jobs",
        lambda: b'{"contexts": {%b}, "items": [1]}' % b",".join(b'"%x":1' % each for each in range(240_000)),
    ),
    "empty_questions": ("/v1/jobs", partial(listed, b'{"question":"","context":"c"}', 9_000)),
    "too_many": ("/v1/jobs", partial(listed, ITEM, 60_000)),
    "wrong_labels": ("/v1/jobs", partial(listed, b"1", 2_500_000, b"labels")),
    "hf_inputs": ("/v1/hf/question-answering", partial(listed, b'{"question":"","context":"c"}', 9_000, b"inputs")),
    "hf_numbers": ("/v1/hf/question-answering", partial(listed, b"1", 2_500_000, b"inputs")),
    "filters": ("/v1/jobs/bulk", lambda: b'{"action": "cancel", "filter": %b}' % listed(b"1", 2_500_000, b"status")),
    "context_fields": ("/v1/contexts", lambda: b"{%b}" % b",".join(b'"%x":1' % each for each in range(500_000))),
    "good_jobs": ("/v1/jobs", partial(listed, ITEM, 10_000)),
}


@cache
def body_of(kind: str) -> bytes:
    """Return the body of a kind."""
    return BODIES[kind][1]()


async def send_body(target: Target, number: int, kind: str) -> None:  # noqa: ARG001  # the signature is that of all abuse
    """Send a body, and wait for its answer."""
    async with target.wire() as (reader, writer):
        writer.write(target.request("POST", BODIES[kind][0], body_of(kind)))
        with suppress(ConnectionError):
            await reader.read(1000)


async def long_lines(target: Target, number: int) -> None:  # noqa: ARG001
    """Send a line of several MB that does not end, the last of it a few bytes at a time."""
    head = target.request("POST", "/v1/jobs", length=8_000_000).replace(b"application/json", NDJSON)
    async with target.wire() as (_, writer):
        writer.write(head + b"x" * 7_900_000)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(FOLLOWED_S):
                while True:
                    writer.write(TRICKLE)
                    await writer.drain()
                    await asyncio.sleep(0)


async def failed_streams(target: Target, number: int) -> None:  # noqa: ARG001
    """Follow the failed results of a job that has none, on the console."""
    async with target.wire() as (reader, writer):
        writer.write(target.request("GET", f"/console/stream?page=job&id={target.job}&after=0&only=failed"))
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOWED_S):
                while await reader.read(65_536):
                    pass


Abuse = Callable[[Target, int], Awaitable[None]]

#: Each kind, and its connections in all.
BODY_KINDS: dict[str, tuple[Abuse, int]] = {
    **{kind: (partial(send_body, kind=kind), 100) for kind in BODIES},
    "long_lines": (long_lines, 8),
    "failed_streams": (failed_streams, 50),
}
