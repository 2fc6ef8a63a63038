"""Rate limits: sliding windows that the `limits` library keeps in Redis, so that all API processes count together.

While Redis cannot be reached, requests are let through: the routes then fail by themselves.
"""

import asyncio
import math
import time
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Network, ip_address
from typing import Any

import redis.exceptions
from limits import RateLimitItem, parse
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from corelane.errors import RateLimited
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.connections import make_async_pool

log = get_logger(__name__)

#: A Redis that does not reply within this time counts as unreachable, in seconds.
TIMEOUT_S = 1.0

#: A missing Redis is logged at most this often, in seconds.
LOG_S = 10.0

#: The smallest network that an IPv6 provider gives a subscriber. It counts as one caller.
IPV6_PREFIX = 64


class Kind(StrEnum):
    """The kinds of requests, which are counted separately."""

    SUBMITS = "submits"
    READS = "reads"


@dataclass(frozen=True, slots=True)
class RateStanding:
    """A caller's limit after a request: ``left`` of ``most`` requests in ``window_s``, and more after ``reset_s``."""

    kind: Kind
    is_within: bool
    most: int
    window_s: int
    left: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """Return the response headers: those of the IETF's draft, and the older ones."""
        return {
            "RateLimit-Policy": f'"{self.kind}";q={self.most};w={self.window_s}',
            "RateLimit": f'"{self.kind}";r={self.left};t={self.reset_s}',
            "X-RateLimit-Limit": str(self.most),
            "X-RateLimit-Remaining": str(self.left),
            "X-RateLimit-Reset": str(self.reset_s),
        }

    def error(self) -> RateLimited:
        """Return the error of a request beyond the limit."""
        return RateLimited(
            f"more than {self.most:,} {self.kind} in {self.window_s:,} s; come back after {self.reset_s} s",
            self.reset_s,
        )


class RateLimiter:
    """Counts requests of callers."""

    def __init__(self, settings: Settings) -> None:
        given = {Kind.SUBMITS: settings.submit_rate, Kind.READS: settings.read_rate}
        self._limits: dict[Kind, RateLimitItem] = {kind: parse(rate) for kind, rate in given.items() if rate}
        self._logged_s = -math.inf
        self.is_on = bool(self._limits)
        if self.is_on:
            times = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
            self._connections = make_async_pool(settings.redis_url, **times)
            # The limiter gets its own connections, so only the scheme of the URL matters.
            connections: dict[str, Any] = {"connection_pool": self._connections}
            storage = RedisStorage("redis://", implementation="redispy", key_prefix=keys.RATES_PREFIX, **connections)
            self._counter = SlidingWindowCounterRateLimiter(storage)

    async def count(self, kind: Kind, who: str) -> RateStanding | None:
        """Count one request and return the standing; None if this kind has no limit, or Redis is unreachable."""
        limit = self._limits.get(kind)
        if limit is None:
            return None
        try:
            is_within, stats = await asyncio.gather(
                self._counter.hit(limit, who, kind), self._counter.get_window_stats(limit, who, kind)
            )
        except (redis.exceptions.RedisError, OSError) as error:
            if time.monotonic() - self._logged_s > LOG_S:
                self._logged_s = time.monotonic()
                log.warning("rates_not_counted", detail=f"{type(error).__name__}: {error}")
            return None
        left = min(stats.remaining, limit.amount - 1) if is_within else 0
        reset_s = max(1, math.ceil(stats.reset_time - time.time()))
        return RateStanding(kind, is_within, limit.amount, limit.get_expiry(), left, reset_s)

    async def close(self) -> None:
        """Close the connections."""
        if self.is_on:
            await self._connections.aclose()


def address_of(client: tuple[str, int] | None) -> str:
    """Return the name under which an address is counted; for IPv6 it is the subscriber's network."""
    host = client[0] if client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return "unknown"
    if address.version == 6:
        address = address.ipv4_mapped or address
    return str(IPv6Network((int(address), IPV6_PREFIX), strict=False)) if address.version == 6 else str(address)
