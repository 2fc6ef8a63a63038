"""The channel on which jobs become final: one subscription per API process."""

import asyncio
from collections.abc import AsyncIterator

import redis.exceptions

from corelane.store.link.aio import READ_BYTES, make_parser, open_streams
from corelane.store.link.blocking import store_errors

#: After so long a silence Redis is asked for a sign of life, which must come as fast, in seconds.
CHECK_S = 2


async def finished_jobs(url: str) -> AsyncIterator[str]:
    """An empty text once listening, then the ids of jobs as they become final; raises StoreUnavailable at the end."""
    with store_errors():
        reader, writer = await open_streams(url)
        try:
            writer.write(b"SUBSCRIBE cl:done\r\n")
            parser = make_parser()
            asked = False
            while True:
                try:
                    # Not wait_for: in Python 3.11 it forgets a cancellation that comes together with data.
                    async with asyncio.timeout(CHECK_S):
                        data = await reader.read(READ_BYTES)
                except TimeoutError:
                    if asked:
                        raise
                    asked = True
                    writer.write(b"PING\r\n")
                    continue
                if not data:
                    raise redis.exceptions.ConnectionError("Redis closed the subscription")
                asked = False
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
