"""Connections to the Redis that takes writes, from one URL (see ``corelane.settings.address``).

With Sentinels, each new connection asks them for the primary and checks that it is one. When a server says that it
takes no writes any more, its connection is closed, so that the next one goes to the new primary.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import redis
import redis.asyncio
import redis.exceptions
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from corelane.settings.address import TLS_NAMES, RedisAddress, read_address

#: Error replies of a server that is a replica, or must not write now. Another server may take writes.
NO_PRIMARY = re.compile(r"(READONLY|NOREPLICAS|MASTERDOWN|UNBLOCKED)\b")

#: Longest wait for one Sentinel, in seconds; then the next one is asked.
SENTINEL_S = 0.5


class NoPrimary(redis.exceptions.ConnectionError):
    """The server takes no writes now: it is a replica, or too few of its own replicas are connected."""


def says_no_primary(text: str) -> bool:
    """Return whether an error reply says that the server takes no writes."""
    return NO_PRIMARY.match(text) is not None


class Sentinels:
    """The Sentinels of one primary; the one that answered last is asked first."""

    def __init__(self, address: RedisAddress, options: Mapping[str, Any]) -> None:
        self.primary = address.primary
        self._places = list(address.sentinels)
        self._kind: Any = redis.SSLConnection if address.is_tls else redis.Connection
        username, password = address.sentinel_login
        shared = {name: options[name] for name in TLS_NAMES if name in options}
        self._options: dict[str, Any] = {**shared, "username": username, "password": password, "protocol": 2}

    def find(self) -> tuple[str, int]:
        """Return the primary's host and port; raise ConnectionError if no Sentinel knows it."""
        said = []
        for place in self._places:
            try:
                found = self._ask(place, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.primary)
            except (redis.exceptions.RedisError, OSError) as error:
                said.append(f"{place[0]}:{place[1]}: {error}")
                continue
            if found:
                self._places = [place, *(each for each in self._places if each != place)]
                return found[0].decode(), int(found[1])
            said.append(f"{place[0]}:{place[1]} knows no primary {self.primary}")
        raise redis.exceptions.ConnectionError(f"no Sentinel names the primary {self.primary} ({'; '.join(said)})")

    def _ask(self, place: tuple[str, int], *command: Any) -> Any:
        host, port = place
        timeouts = {"socket_timeout": SENTINEL_S, "socket_connect_timeout": SENTINEL_S}
        connection: Any = self._kind(host=host, port=port, retry=Retry(NoBackoff(), 0), **timeouts, **self._options)
        try:
            connection.connect()
            connection.send_command(*command)
            return connection.read_response()
        finally:
            connection.disconnect()


class _ToPrimary:
    """Makes a blocking connection go to the primary. If there are ``sentinels``, they name the primary."""

    def __init__(self, *args: Any, sentinels: Sentinels | None = None, **kwargs: Any) -> None:
        self._sentinels = sentinels
        super().__init__(*args, **kwargs)

    def _connect(self) -> Any:
        if self._sentinels is not None:
            self.host, self.port = self._sentinels.find()
        return super()._connect()  # type: ignore[misc]

    def on_connect_check_health(self, check_health: bool = True) -> None:
        super().on_connect_check_health(check_health=check_health)  # type: ignore[misc]
        if self._sentinels is not None:
            self.send_command("ROLE", check_health=False)  # type: ignore[attr-defined]
            require_primary(self.read_response(), self._sentinels)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.exceptions.ResponseError as error:
            if (lost := no_primary(error)) is not None:
                self.disconnect()  # type: ignore[attr-defined]
                raise lost from error
            raise


class _AsyncToPrimary:
    """Makes an asyncio connection go to the primary. Sentinels are asked in a thread, as connecting is rare."""

    def __init__(self, *args: Any, sentinels: Sentinels | None = None, **kwargs: Any) -> None:
        self._sentinels = sentinels
        super().__init__(*args, **kwargs)

    async def _connect(self) -> None:
        if self._sentinels is not None:
            self.host, self.port = await asyncio.to_thread(self._sentinels.find)
        await super()._connect()  # type: ignore[misc]

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        await super().on_connect_check_health(check_health=check_health)  # type: ignore[misc]
        if self._sentinels is not None:
            await self.send_command("ROLE", check_health=False)  # type: ignore[attr-defined]
            require_primary(await self.read_response(), self._sentinels)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.exceptions.ResponseError as error:
            if (lost := no_primary(error)) is not None:
                await self.disconnect()  # type: ignore[attr-defined]
                raise lost from error
            raise


def _by_scheme(mixin: type, library: Any) -> dict[str, Any]:
    """Return the classes of a library's connections, by scheme: without TLS, with TLS, and through a socket file."""
    bases = {"redis": library.Connection, "rediss": library.SSLConnection, "unix": library.UnixDomainSocketConnection}
    return {scheme: type(f"Primary{base.__name__}", (mixin, base), {}) for scheme, base in bases.items()}


BLOCKING, ASYNC = _by_scheme(_ToPrimary, redis), _by_scheme(_AsyncToPrimary, redis.asyncio)


def require_primary(role: Any, sentinels: Sentinels) -> None:
    """Raise NoPrimary unless a reply to ROLE is a primary's. Sentinels may name the old primary for a moment."""
    name = role[0].decode() if isinstance(role[0], bytes) else role[0]
    if name != "master":
        raise NoPrimary(f"the Sentinels still name a {name} as {sentinels.primary}")


def no_primary(error: Exception) -> NoPrimary | None:
    """Return a NoPrimary if an error reply says that the server is no primary, else None."""
    # redis-py cuts off the first word of a reply if it has a class for it.
    text = f"READONLY {error}" if isinstance(error, redis.exceptions.ReadOnlyError) else str(error)
    return NoPrimary(text) if says_no_primary(text) else None


def connection_options(url: str, classes: Mapping[str, Any] = BLOCKING) -> dict[str, Any]:
    """Return the arguments of a connection, with its class, one of ``classes``, as ``connection_class``."""
    address = read_address(url)
    options: dict[str, Any] = dict(parse_url(address.url))  # type: ignore[no-untyped-call]
    options["connection_class"] = classes[address.url.partition("://")[0]]
    if address.sentinels:
        options["sentinels"] = Sentinels(address, options)
    return options


def make_pool(url: str, **more: Any) -> redis.ConnectionPool:
    """Make a pool of blocking connections; options in the URL take precedence over ``more``."""
    return redis.ConnectionPool(**(more | connection_options(url)))


def make_async_pool(url: str, **more: Any) -> redis.asyncio.ConnectionPool:
    """Make a pool of connections for one event loop."""
    return redis.asyncio.ConnectionPool(**(more | connection_options(url, ASYNC)))
