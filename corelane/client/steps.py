"""The steps of a dialogue with a service: what a driver performs, and what it returns. Plain data.

``protocol.py`` makes them; ``Client`` performs them with blocking calls, ``AsyncClient`` with asyncio.
"""

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from corelane.client.endpoints import Call
from corelane.client.patience import Wait

Reply = TypeVar("Reply")


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
class Return(Generic[Reply]):
    """Give the caller one of several things, and continue when the caller asks for the next."""

    value: Reply


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream of events or bytes, closing an open one; returns None, or what Send returns if opening failed."""

    call: Call[Any]
    is_events: bool = True


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Wait for the stream's next part; returns it, None at the end, or the httpx2.HTTPError that broke the stream."""


IoStep = Send | Sleep | OpenStream | ReadStream

#: A dialogue that ends with one reply; and one that gives several things on its way.
Exchange = Generator[IoStep, Any, Reply]
Iteration = Generator[IoStep | Return[Reply], Any, None]


def as_iteration(exchange: Exchange[Reply]) -> Iteration[Reply]:
    """Turn an exchange into an iteration over its one reply."""
    yield Return((yield from exchange))


def all_of(iteration: Iteration[Reply]) -> Exchange[list[Reply]]:
    """Turn an iteration into an exchange that returns all of it."""
    found: list[Reply] = []
    outcome: Any = None
    with closing(iteration):
        while True:
            try:
                step = iteration.send(outcome)
            except StopIteration:
                return found
            if isinstance(step, Return):
                found.append(step.value)
                outcome = None
            else:
                outcome = yield step
