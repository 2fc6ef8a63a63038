"""The link for threads: one blocking connection that pipelines its commands and never repeats one on its own.

redis-py repeats timed-out commands up to ten times by default; here a command is sent once, and its sender decides
whether it may be sent again.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redis
import redis.exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from corelane.store import schema
from corelane.store.link.library import Command, call, is_missing, read_library
from corelane.store.link.surface import (
    SOCKET_TIMEOUT_S,
    CommonLink,
    checked,
    store_errors,
    to_ms,
)

Found = TypeVar("Found")


class Link:
    """A blocking connection to Redis. Not thread-safe.

    After an error the connection is closed; the next call opens a new one. A call costs a third of the CPU time of one
    by redis-py's client (24 against 74 µs measured), which matters in the drain.
    """

    def __init__(self, url: str, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._pool = redis.ConnectionPool.from_url(
            url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._connection = self._pool.make_connection()

    def __call__(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return self.many([command])[0]

    def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, or raise the first error among them.

        Where Redis does not have the library, it is loaded, and the calls that Redis refused are sent again.
        """
        with store_errors():
            replies = self._exchange(commands) if commands else []
            if refused := [place for place, reply in enumerate(replies) if is_missing(reply)]:
                format_, _ = checked(self._exchange([schema.CLAIM, read_library().load]))
                schema.require_known(format_)
                again = self._exchange([commands[place] for place in refused])
                for place, reply in zip(refused, again, strict=True):
                    replies[place] = reply
            return checked(replies)

    def run(self, function: str, *payloads: Any, **named: Any) -> Any:
        """Run one function of the library; return its reply."""
        return self.many([call(function, *payloads, **named)])[0]

    def now_ms(self) -> int:
        """Return the server's time, so that the clocks of hosts do not matter."""
        return to_ms(self("TIME"))

    def read(self, reader: Callable[[CommonLink], Coroutine[Any, Any, Found]]) -> Found:
        """Run a reader over this connection, without an event loop: it awaits its link alone, which never suspends."""
        reading = reader(_Awaitable(self))
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
        """Send commands and read all replies; error replies are values."""
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


class _Awaitable(CommonLink):
    """A blocking link as readers see it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        return self._link.many(commands)
