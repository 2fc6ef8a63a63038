"""What is overdue: work that could go on and that nobody carries on, by name, with the time it has waited.

Webhooks are sent by the sender, the rest is the keeper's. What waits for a receiver that fails is not overdue.
"""

from collections.abc import Mapping, Sequence

from corelane.settings import Settings
from corelane.store.link.aio import AsyncLink
from corelane.store.link.blocking import Link
from corelane.store.link.surface import SOCKET_TIMEOUT_S

#: What has waited longer than this although it could go on shows that something is broken, in seconds. All that is
#: promised after a fault takes 15.
OVERDUE_S = 30.0

#: What the script tells of, in its order, with what sees to it.
CARRIERS = {
    "webhooks": "`corelane deliveries`",
    "sweeps": "`corelane keeper`",
    "feeding": "`corelane keeper`",
    "batches": "`corelane keeper`",
}

#: Seconds that something has waited, by its name; what has nothing to do is left out.
Waits = Mapping[str, float]


def read_waits(link: Link) -> Waits:
    """How long what could go on has waited."""
    return _by_name(link.run("overdue"))


async def fetch_waits(link: AsyncLink) -> Waits:
    """The same, for asyncio."""
    return _by_name(await link.run("overdue"))


class OverdueWatch:
    """The look of a process that carries something on at what it and others leave undone."""

    def __init__(self, settings: Settings) -> None:
        self._link = Link(settings.redis_url, SOCKET_TIMEOUT_S)

    def overdue(self) -> Waits:
        """What is overdue now."""
        return only_overdue(read_waits(self._link))


def only_overdue(waits: Waits) -> Waits:
    """What has waited for too long."""
    return {name: waited_s for name, waited_s in waits.items() if waited_s > OVERDUE_S}


def _by_name(waits_ms: Sequence[int]) -> Waits:
    return {name: ms / 1000 for name, ms in zip(CARRIERS, waits_ms, strict=True) if ms >= 0}
