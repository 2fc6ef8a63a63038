"""A Redis transport for Celery that finds the primary, and survives any text in a queue.

kombu has its own handling of Sentinels and TLS, and its worker ends at an error reply of a demoted primary. So
connections here are those of ``corelane.store.link.connections``. kombu 5.7 catches no error of an unreadable message
(https://github.com/celery/kombu/issues/2421 reports this for another transport): here the message is logged and
discarded.
"""

from typing import Any

from kombu.transport import redis

from corelane.log import get_logger
from corelane.store.link.connections import BLOCKING, connection_options

log = get_logger(__name__)

#: Errors that kombu raises if a message lacks a field, has one of another type, or is not JSON.
UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)

#: Longest wait for a message before looking for a stop, in seconds. Celery 5.7 waits 2 s, which no signal ends.
LOOK_UP_S = 0.25


class GuardedChannel(redis.Channel):
    """A channel to the primary that discards any text that is not a message.

    Its connection (``corelane.broker.app.SteadyConnection``) has the URL of Redis, ``redis_url``.
    """

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """Return the arguments of a pool. Connections of the event loop leave the pool when they are closed."""
        options = {
            "max_connections": self.max_connections,
            "socket_timeout": self.socket_timeout,
            "socket_connect_timeout": self.socket_connect_timeout,
            "health_check_interval": self.health_check_interval,
            "db": 0,
        } | connection_options(self.connection.client.redis_url)
        kind: Any = options["connection_class"]
        if kind is not BLOCKING["unix"]:
            options.setdefault("socket_keepalive", self.socket_keepalive)
        if asynchronous:
            options["connection_class"] = self._polled(kind)
        return options

    def _polled(self, kind: Any) -> type:
        channel = self

        class Polled(kind):
            def disconnect(self, *args: Any, **kwargs: Any) -> None:
                super().disconnect(*args, **kwargs)
                if channel._registered:
                    channel._on_connection_disconnect(self)

        return Polled

    def _brpop_read(self, **options: Any) -> Any:
        """Deliver the next message. One that cannot be read is discarded, and the worker continues."""
        before = self._in_hand()
        try:
            return super()._brpop_read(**options)
        except UNREADABLE as error:
            log.error("message_thrown_away", reason=f"{type(error).__name__}: {error}"[:500])
            # A message that failed after parsing still occupies one of the places for unacknowledged messages: free it.
            for tag in self._in_hand() - before:
                self.basic_ack(tag)
            return True

    def close(self) -> None:
        """Close without first waiting up to a second for a message, as kombu does.

        A bell that is lost then is rung again. The work of other queues is done by the loops anyway.
        """
        waiting: Any = self._in_poll
        if waiting:
            waiting.disconnect()
            self._in_poll: Any = None
        super().close()

    def _in_hand(self) -> set[str]:
        """Return the tags of messages that were delivered but not acknowledged."""
        return set(self.qos._delivered) - self.qos._dirty


class GuardedTransport(redis.Transport):
    """kombu's Redis transport with guarded channels. While waiting for a message, it checks often for a stop."""

    Channel = GuardedChannel

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Wait for a message, for at most ``LOOK_UP_S`` if a timeout is given."""
        super().drain_events(connection, timeout=None if timeout is None else min(timeout, LOOK_UP_S))
