"""The sums of all metrics in the store: how a process adds what it measured, and how all are read.

A process flushes about once a second. For a while after its last flush it still counts as living, and its gauges count
too.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from corelane import __version__
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.metrics.recorder import Recorder
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.library import read_library
from corelane.store.link.link import CommonLink, flatten, pairs

log = get_logger(__name__)

#: A process flushes this often, in seconds.
FLUSH_S = 1.0

#: A process that has not flushed for this time is taken for gone, in milliseconds. It is long because a loaded host
#: delays flushes.
GONE_MS = 15_000

#: The number of a process' last flush is kept for this time, in seconds: longer than a flush waits for Redis.
NUMBER_TTL_S = 3600


class ProcessMetrics:
    """The metrics of one process: what it measures, and its gauges by name. ``role`` is what the process does."""

    def __init__(self, role: str) -> None:
        self.recorder = Recorder()
        self.gauges: dict[str, float] = {}
        #: Names this process in the store.
        self._name = uuid4().hex
        self._facts = {"role": role, "host": socket.gethostname(), "pid": os.getpid(), "release": __version__}

    @contextmanager
    def counted(self, gauge: str) -> Iterator[None]:
        """Raise a gauge by one while a block runs."""
        self.gauges[gauge] = self.gauges.get(gauge, 0) + 1
        try:
            yield
        finally:
            self.gauges[gauge] -= 1

    def flush_over(self, link: Link, *, leaves: bool = False) -> None:
        """Flush over a blocking link."""
        link.read(lambda read: self.flush(read, leaves=leaves))

    async def flush(self, link: CommonLink, *, leaves: bool = False) -> None:
        """Send what was measured since the last flush; ``leaves`` if the process ends.

        Raises Unavailable if Redis cannot be reached; the next flush sends the same figures again. May be repeated, but
        only one flush may run at a time.
        """
        delta = self.recorder.take()
        await link.run(
            "flush_metrics",
            process=self._name,
            number=0 if delta is None else delta.number,
            facts=flatten(self._facts | self.gauges),
            ttl_s=NUMBER_TTL_S,
            release=f"{__version__} ({read_library().name})",
            leaves=leaves,
            amounts=[] if delta is None else flatten(delta.amounts),
        )
        if delta is not None:
            self.recorder.sent(delta)


class Flushing:
    """Flushes a process' metrics from an event loop while it runs."""

    def __init__(self, metrics: ProcessMetrics, link: CommonLink) -> None:
        self._metrics = metrics
        self._link = link
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the flushes."""
        self._task = asyncio.create_task(self._run(), name="metrics")

    async def close(self) -> None:
        """Flush for the last time."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(Unavailable):
            await self.flush(leaves=True)

    async def flush(self, *, leaves: bool = False) -> None:
        """Flush now; raises Unavailable if Redis is unreachable."""
        async with self._lock:
            await self._metrics.flush(self._link, leaves=leaves)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flush()
            except Unavailable:
                continue  # the log says so elsewhere
            except Exception:  # the next flush must come
                log.exception("flush_broke")


async def read_sums(link: CommonLink) -> dict[str, float]:
    """Return the sums of all processes over all time, by field."""
    return {field.decode(): float(amount) for field, amount in pairs(await link("HGETALL", keys.METRICS))}
