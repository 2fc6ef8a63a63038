"""Overdue work: work that could go on but that no process does, and how long it has waited.

The webhook sender is responsible for webhooks, the keeper for the rest. A delivery to a failing receiver is not
overdue.
"""

from collections.abc import Mapping

from corelane.domain.conditions import WORK_OVERDUE
from corelane.plugin import installed
from corelane.store.link.link import CommonLink, pairs
from corelane.store.plugin import StorePlugin

#: The kinds of work, with the command responsible for each.
CARRIERS = {
    "webhooks": "`corelane deliveries`",
    "sweeps": "`corelane keeper`",
    "feeding": "`corelane keeper`",
    **{name: "`corelane keeper`" for plugin in installed(StorePlugin) for name in plugin.overdue},
}

#: Seconds that each kind of work has waited; kinds without work are left out.
Waits = Mapping[str, float]


async def read_waits(link: CommonLink) -> Waits:
    """Read how long each kind of work has waited although it could go on."""
    return {name.decode(): ms / 1000 for name, ms in pairs(await link.run("overdue")) if ms >= 0}


def only_overdue(waits: Waits) -> Waits:
    """Return the kinds of work that have waited for too long."""
    return {name: waited_s for name, waited_s in waits.items() if WORK_OVERDUE.holds(waited_s)}
