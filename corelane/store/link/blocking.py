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

from corelane.store.link.library import Command
from corelane.store.link.surface import SOCKET_TIMEOUT_S, CommonLink

Found = TypeVar("Found")


class Link:
    """A blocking connection to Redis, with the calls of CommonLink. Not thread-safe.

    After an error the connection is closed; the next call opens a new one. A call costs a third of the CPU time of one
    by redis-py's client (24 against 74 µs measured), which matters in the drain.
    """

    def __init__(self, url: str, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._socket = _Socket(url, timeout_s)

    def read(self, reader: Callable[[CommonLink], Coroutine[Any, Any, Found]]) -> Found:
        """Run a reader over this connection, without an event loop: it awaits its link alone, which never suspends."""
        reading = reader(self._socket)
        try:
            reading.send(None)
        except StopIteration as stop:
            found: Found = stop.value
            return found
        reading.close()
        raise RuntimeError("a reader may await its link alone")

    def __call__(self, *command: Any) -> Any:
        """Send one command; return its reply."""
        return self.read(lambda link: link(*command))

    def many(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands in one trip; return all replies in order, or raise the first error among them."""
        return self.read(lambda link: link.many(commands))

    def run(self, function: str, *payloads: Any, **named: Any) -> Any:
        """Run one function of the library; return its reply."""
        return self.read(lambda link: link.run(function, *payloads, **named))

    def now_ms(self) -> int:
        """Return the server's time, so that the clocks of hosts do not matter."""
        return self.read(lambda link: link.now_ms())

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self._socket.connection.disconnect()


class _Socket(CommonLink):
    """A connection whose calls block, and so never suspend the coroutine that awaits them."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._pool = redis.ConnectionPool.from_url(
            url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self.connection = self._pool.make_connection()

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        try:
            self.connection.connect()
            self.connection.send_packed_command(self.connection.pack_commands(commands))
            return [self._read_reply() for _ in commands]
        except BaseException:
            self.connection.disconnect()
            raise

    def _read_reply(self) -> Any:
        try:
            return self.connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error
