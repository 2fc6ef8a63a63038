"""How often a caller may ask: sliding windows kept in Redis by the `limits` library, so that all API processes count
together.

Off unless set. One trip a request: the count and its standing are asked for side by side. Without Redis requests are
let through, as the routes have no answer then either.
"""

import asyncio
import math
import time
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Network, ip_address
from typing import Any

import redis.asyncio
import redis.exceptions
from limits import RateLimitItem, parse
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys

log = get_logger(__name__)

#: A Redis that is silent for longer is taken for away, in seconds.
TIMEOUT_S = 1.0

#: Its being away is logged this often, in seconds.
COMPLAIN_S = 10.0

#: What one subscriber of an IPv6 provider has at least: counted as one.
IPV6_PREFIX = 64


class Kind(StrEnum):
    """What is counted apart."""

    SUBMITS = "submits"
    READS = "reads"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a caller stands after a request: ``left`` of ``most`` in ``window_s``, more after ``reset_s``."""

    kind: Kind
    is_within: bool
    most: int
    window_s: int
    left: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """What is told of it, in the words of the IETF's draft and in those that came before it."""
        return {
            "RateLimit-Policy": f'"{self.kind}";q={self.most};w={self.window_s}',
            "RateLimit": f'"{self.kind}";r={self.left};t={self.reset_s}',
            "X-RateLimit-Limit": str(self.most),
            "X-RateLimit-Remaining": str(self.left),
            "X-RateLimit-Reset": str(self.reset_s),
        }


class Rates:
    """The counts of one service."""

    def __init__(self, settings: Settings) -> None:
        given = {Kind.SUBMITS: settings.submit_rate, Kind.READS: settings.read_rate}
        self._limits: dict[Kind, RateLimitItem] = {kind: parse(rate) for kind, rate in given.items() if rate}
        self._complained = -math.inf
        if self._limits:
            self._connections = redis.asyncio.ConnectionPool.from_url(
                settings.redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
            )
            # The scheme alone matters of a URL beside connections of our own.
            connections: dict[str, Any] = {"connection_pool": self._connections}
            storage = RedisStorage("redis://", implementation="redispy", key_prefix=keys.RATES_PREFIX, **connections)
            self._counter = SlidingWindowCounterRateLimiter(storage)

    async def count(self, kind: Kind, who: str) -> Standing | None:
        """Count one request; None where nothing is limited, or Redis is away."""
        limit = self._limits.get(kind)
        if limit is None:
            return None
        try:
            is_within, stats = await asyncio.gather(
                self._counter.hit(limit, who, kind), self._counter.get_window_stats(limit, who, kind)
            )
        except (redis.exceptions.RedisError, OSError) as error:
            self._complain(error)
            return None
        left = min(stats.remaining, limit.amount - 1) if is_within else 0
        reset_s = max(1, math.ceil(stats.reset_time - time.time()))
        return Standing(kind, is_within, limit.amount, limit.get_expiry(), left, reset_s)

    async def close(self) -> None:
        """Close the connections."""
        if self._limits:
            await self._connections.aclose()

    def _complain(self, error: Exception) -> None:
        if time.monotonic() - self._complained > COMPLAIN_S:
            self._complained = time.monotonic()
            log.warning("rates_not_counted", detail=f"{type(error).__name__}: {error}")


def address_of(client: tuple[str, int] | None) -> str:
    """Whom an address stands for: of IPv6 the network that one subscriber has."""
    host = client[0] if client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return "unknown"
    if address.version == 6:
        address = address.ipv4_mapped or address
    return str(IPv6Network((int(address), IPV6_PREFIX), strict=False)) if address.version == 6 else str(address)
