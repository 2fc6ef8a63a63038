"""Subscriptions: what Redis publishes on a channel, on a connection of its own."""

import asyncio
from collections.abc import AsyncIterator

import redis.exceptions

from corelane.store.link.link import make_parser, open_streams, store_errors

#: Bytes read at a time.
READ_BYTES = 64 * 1024

#: After so long a silence Redis is asked for a sign of life, which must come as fast, in seconds.
CHECK_S = 2


async def subscribe(url: str, channel: str) -> AsyncIterator[str]:
    """Yield an empty text once subscribed, then the channel's messages; raise StoreUnavailable at the end."""
    with store_errors():
        reader, writer = await open_streams(url)
        try:
            writer.write(f"SUBSCRIBE {channel}\r\n".encode())
            parser = make_parser()
            was_asked = False
            while True:
                try:
                    # Not wait_for: in Python 3.11 it forgets a cancellation that comes together with data.
                    async with asyncio.timeout(CHECK_S):
                        data = await reader.read(READ_BYTES)
                except TimeoutError:
                    if was_asked:
                        raise
                    was_asked = True
                    writer.write(b"PING\r\n")
                    continue
                if not data:
                    raise redis.exceptions.ConnectionError("Redis closed the subscription")
                was_asked = False
                parser.feed(data)
                while (message := parser.gets()) is not False:
                    if isinstance(message, redis.exceptions.ResponseError):
                        continue  # A Redis whose disk is full answers PING so: it lives.
                    if message[0] == b"subscribe":
                        yield ""
                    elif message[0] == b"message":
                        yield message[2].decode()
        finally:
            writer.close()
