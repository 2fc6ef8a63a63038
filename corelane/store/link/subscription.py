"""Subscriptions: the messages that Redis publishes on a channel, on a connection of its own.

Each message is passed on as it comes, without a task in between: most callers that wait for a job wait for one.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import hiredis
import redis.exceptions

from corelane.store.link.connections import NoPrimary
from corelane.store.link.link import error_of, open_streams, store_errors

#: If Redis sends nothing for this time, in seconds, it is pinged. It must reply to the ping within as long again.
CHECK_S = 2


class Channels:
    """The channels of a subscription. They may come and go while it lasts."""

    def __init__(self, *names: str) -> None:
        self.names = dict.fromkeys(names)
        self.transport: asyncio.WriteTransport | None = None

    def add(self, name: str) -> None:
        """Subscribe to a channel."""
        if name not in self.names:
            self.names[name] = None
            self.send("SUBSCRIBE", name)

    def remove(self, name: str) -> None:
        """Unsubscribe from a channel."""
        if name in self.names:
            del self.names[name]
            self.send("UNSUBSCRIBE", name)

    def send(self, command: str, *names: str) -> None:
        """Send a command if there is a connection; a new one subscribes to all channels."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(f"{command} {' '.join(names)}\r\n".encode())


async def subscribe(url: str, channels: Channels, hear: Callable[[str, str], None]) -> NoReturn:
    """Call ``hear`` with the channel and text of each message; raise StoreUnavailable if the subscription ends.

    The first message of a channel is empty. It says that the channel is subscribed to.
    """
    with store_errors():
        streams = await open_streams(url)
        subscription = _Subscription(hear)
        transport = streams[1].transport
        transport.set_protocol(subscription)
        try:
            channels.transport = transport
            channels.send("SUBSCRIBE", *channels.names)
            was_asked = False
            while True:
                heard = subscription.heard
                await asyncio.wait([subscription.closed], timeout=CHECK_S)
                if subscription.closed.done():
                    raise redis.exceptions.ConnectionError("Redis closed the subscription")
                is_silent = subscription.heard == heard
                if is_silent and was_asked:
                    raise TimeoutError(f"no sign of life within {CHECK_S} s")
                if is_silent:
                    transport.write(b"PING\r\n")
                was_asked = is_silent
        finally:
            channels.transport = None
            transport.abort()


class _Subscription(asyncio.Protocol):
    """The connection of one subscription."""

    def __init__(self, hear: Callable[[str, str], None]) -> None:
        self._hear = hear
        self._parser = hiredis.Reader(replyError=error_of)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: How many times Redis sent anything.
        self.heard = 0

    def data_received(self, data: bytes) -> None:
        """Pass on the messages that came."""
        self.heard += 1
        try:
            self._parser.feed(data)
            while (message := self._parser.gets()) is not False:
                if isinstance(message, NoPrimary):
                    self._close()
                elif isinstance(message, redis.exceptions.ResponseError):
                    continue  # A Redis whose disk is full replies to PING with an error: it lives.
                elif message[0] == b"subscribe":
                    self._hear(message[1].decode(), "")
                elif message[0] == b"message":
                    # Bytes that are not UTF-8 must not end the subscription; a reader of JSON refuses them.
                    self._hear(message[1].decode(), message[2].decode(errors="surrogateescape"))
        except hiredis.ProtocolError:
            self._close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        """Note that the connection is closed."""
        self._close()

    def _close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
