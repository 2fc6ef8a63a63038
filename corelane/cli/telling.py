"""What `serve` tells the service of its own parts, through Redis, so that API, console and ``doctor`` show it."""

import asyncio
import os
from contextlib import suppress

from corelane.cli.supervisor import Supervisor
from corelane.errors import CorelaneError
from corelane.settings import Settings

#: Told this often, in seconds; readers believe it for ``corelane.store.troubles.BELIEVED_MS``.
TELL_S = 3.0


async def tell_troubles(settings: Settings, supervisor: Supervisor) -> None:
    """Tell what is wrong with the parts until the service stops, and take it back then."""
    from redis.exceptions import RedisError

    from corelane.store.link.link import AsyncLink
    from corelane.store.troubles import PartReport

    link = AsyncLink(settings.redis_url)
    report = PartReport(link, f"{settings.core_host}#{os.getpid()}")
    try:
        while not supervisor.is_over:
            # `serve` shows what happens to Redis, and tells the rest again.
            with suppress(CorelaneError, RedisError, TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await report.tell(supervisor.troubles())
            await supervisor.wait(TELL_S)
        async with asyncio.timeout(TELL_S):
            await report.tell({})
    except (CorelaneError, RedisError, TimeoutError):
        return
    finally:
        await link.close()
