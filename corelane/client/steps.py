"""The steps of a dialogue with a service: what a driver performs, and what it returns. Plain data.

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
    """Send a call once; returns an HttpReply, or the httpx2.HTTPError if no reply came."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete reply of the service."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for a while; ``wait`` has the reason, for the caller."""

    seconds: float
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Return(Generic[Answer]):
    """Give the caller one of several things, and continue when the caller asks for the next."""

    value: Answer


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream of events or bytes, closing an open one; returns None, or what Send returns if opening failed."""

    call: Call[Any]
    is_events: bool = True


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Wait for the stream's next part; returns it, None at the end, or the httpx2.HTTPError that broke the stream."""


IoStep = Send | Sleep | OpenStream | ReadStream

#: A dialogue that ends with one answer; and one that gives several things on its way.
Exchange = Generator[IoStep, Any, Answer]
Iteration = Generator[IoStep | Return[Answer], Any, None]


def as_iteration(exchange: Exchange[Answer]) -> Iteration[Answer]:
    """Turn an exchange into an iteration over its one answer."""
    yield Return((yield from exchange))
