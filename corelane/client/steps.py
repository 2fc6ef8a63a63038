"""The steps of a dialogue with a service: what a driver performs, and what it brings back. Plain data.

``protocol.py`` makes them; ``Client`` performs them with blocking calls, ``AsyncClient`` with asyncio.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from corelane.client.endpoints import Call
from corelane.client.patience import Wait

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a call once; brings an HttpReply, or the httpx2.HTTPError that came in its place."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole answer of the service."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for a while; ``wait`` has the reason for the caller."""

    seconds: float
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Return(Generic[Answer]):
    """Return one thing of many to the caller, and continue when asked for the next."""

    value: Answer


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream of events or bytes, in place of an open one; brings None, or the same as Send in its place."""

    call: Call[Any]
    is_events: bool = True


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Wait for the stream's next part; brings it, None at the end, or the httpx2.HTTPError that broke the stream."""


IoStep = Send | Sleep | OpenStream | ReadStream

#: A dialogue that ends with one answer, and one that returns many things on its way.
Exchange = Generator[IoStep, Any, Answer]
Iteration = Generator[IoStep | Return[Answer], Any, None]


def as_iteration(exchange: Exchange[Answer]) -> Iteration[Answer]:
    """Return an exchange whose answer is returned as the one thing of an iteration."""
    yield Return((yield from exchange))
