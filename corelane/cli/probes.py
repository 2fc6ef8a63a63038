"""Whether a part of `corelane serve` is up: Redis answers, the API listens, a worker's child has reported its core.

A probe returns False where it cannot find out, and never raises.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from corelane.domain.dispatch import Core
from corelane.errors import CorelaneError
from corelane.store import keys

#: A part that is up answers at once, in seconds.
PROBE_TIMEOUT_S = 2

Probe = Callable[[int], Awaitable[bool]]


def redis_probe(url: str) -> Probe:
    """Return a probe: Redis has read its file and answers."""

    async def is_up(_: int) -> bool:
        return await _ask(url, "PING") is not None

    return is_up


def core_probe(url: str, core: Core) -> Probe:
    """Return a probe: a child of this worker has reported the core, in any state."""

    async def is_up(pid: int) -> bool:
        child = await _ask(url, "HGET", keys.core(core), "pid")
        return child is not None and parent_of(int(child)) == pid

    return is_up


def http_probe(host: str, port: int) -> Probe:
    """Return a probe: a server there answers requests, with any status."""

    async def is_up(_: int) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).startswith(b"HTTP/1.1 ")
                finally:
                    writer.close()
        return False

    return is_up


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[1])


async def _ask(url: str, *command: str) -> bytes | None:
    from redis.exceptions import RedisError

    from corelane.store.link.link import AsyncLink

    link = AsyncLink(url, PROBE_TIMEOUT_S)
    try:
        reply = await link(*command)
        return bytes(reply) if isinstance(reply, bytes) else None if reply is None else str(reply).encode()
    except (CorelaneError, RedisError):
        return None
    finally:
        await link.close()
