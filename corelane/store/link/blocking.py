"""The link for threads: one blocking connection that pipelines its commands and never repeats one on its own."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redis.exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from corelane.store.link.connections import make_pool
from corelane.store.link.library import Command
from corelane.store.link.link import SOCKET_TIMEOUT_S, CommonLink, call, checked, exchanges, store_errors, to_ms

Found = TypeVar("Found")


class Link:
    """A blocking connection to Redis, with the calls of CommonLink. Not thread-safe.

    After an error the connection is closed; the next call opens a new one. A call costs a third of the CPU time that
    redis-py's client takes (24 against 74 µs measured), which matters in the drain.
    """

    def __init__(self, url: str, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        times = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
        self._pool = make_pool(url, protocol=2, retry=Retry(NoBackoff(), 0), **times)
        self._connection = self._pool.make_connection()

    def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, or raise the first error among them."""
        with store_errors():
            return checked(self.each(commands))

    def each(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, errors among them."""
        if not commands:
            return []
        with store_errors():
            trip = exchanges(commands)
            to_send = next(trip)
            while True:
                try:
                    to_send = trip.send(self._exchange(to_send))
                except StopIteration as stop:
                    replies: list[Any] = stop.value
                    return replies

    def __call__(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return self.many([command])[0]

    def run(self, function: str, *payloads: Any, **named: Any) -> Any:
        """Run one function of the library; return its reply."""
        return self.many([call(function, *payloads, **named)])[0]

    def now_ms(self) -> int:
        """Return the server's time, so that the clocks of hosts do not matter."""
        return to_ms(self("TIME"))

    def read(self, reader: Callable[[CommonLink], Coroutine[Any, Any, Found]]) -> Found:
        """Run a reader here without an event loop. The reader may await only its link, which never suspends."""
        reading = reader(_Awaited(self))
        try:
            reading.send(None)
        except StopIteration as stop:
            found: Found = stop.value
            return found
        reading.close()
        raise RuntimeError("a reader may await its link alone")

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self._connection.disconnect()

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        try:
            self._connection.connect()
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            return [self._read_reply() for _ in commands]
        except BaseException:
            self._connection.disconnect()
            raise

    def _read_reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error


class _Awaited(CommonLink):
    """A link whose calls block, and so never suspend the coroutine that awaits them."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        return self._link.many(commands)
