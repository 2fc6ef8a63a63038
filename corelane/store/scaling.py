"""Scaling as Redis has it: how many cores there should be, and what hosts with an autoscaler report.

A keeper computes the number (``scaler.py``). Autoscalers, ``GET /v1/scaling`` and the gauge for other scalers read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from corelane.domain.scaling import HostRange, ScalingInfo
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: The computed number of cores is valid for this time, in milliseconds.
BELIEVED_MS = 15_000

#: A host that reports nothing for this time runs no autoscaler any more, in milliseconds; after the second time it is
#: deleted.
SILENT_MS, FORGET_MS = 10_000, 3_600_000


#: States in which a core serves, or soon will.
SERVING = frozenset({"starting", "waiting", "restarting", "idle", "busy"})


@dataclass(frozen=True, slots=True)
class ScaledHost:
    """A host with an autoscaler: the fewest and the most cores it may run, those that run, and those it has stopped."""

    name: str
    least: int
    most: int
    running: Sequence[str] = ()
    stopped: Sequence[str] = ()
    #: The time of the report.
    at_ms: int = 0

    @property
    def range(self) -> HostRange:
        """Return the fewest and most cores of this host, for sharing cores among hosts."""
        return HostRange(self.name, self.least, self.most)


async def read_scaling(link: CommonLink) -> ScalingInfo | None:
    """Return what a keeper computed a moment ago, or None."""
    text = await link("GET", keys.SCALING)
    return None if text is None else ScalingInfo.model_validate_json(text)


async def read_hosts(link: CommonLink) -> list[ScaledHost]:
    """Return the hosts with an autoscaler, by name. Those that have been silent for long are deleted."""
    found, gone = list[ScaledHost](), list[bytes]()
    time, told = await link.many([("TIME",), ("HGETALL", keys.SCALED)])
    for name, text in pairs(told):
        words = orjson.loads(text)
        silent_ms = to_ms(time) - words["at_ms"]
        if silent_ms <= SILENT_MS:
            found.append(ScaledHost(name.decode(), **words))
        elif silent_ms > FORGET_MS:
            gone.append(name)
    if gone:
        await link("HDEL", keys.SCALED, *gone)
    return sorted(found, key=lambda host: host.name)


async def read_stopped(link: CommonLink) -> dict[str, int]:
    """Return the cores that an autoscaler has stopped, by name, and when it reported that."""
    return dict(sorted((core, host.at_ms) for host in await read_hosts(link) for core in host.stopped))


async def tell_host(link: CommonLink, host: ScaledHost) -> None:
    """Report which cores of a host run. Repeat it, or the host counts as one without an autoscaler."""
    words = {"least": host.least, "most": host.most, "running": host.running, "stopped": host.stopped}
    at_ms = await link.now_ms()
    await link("HSET", keys.SCALED, host.name, orjson.dumps({"at_ms": at_ms, **words}))


async def leave_scaling(link: CommonLink, host: str) -> None:
    """Report that a host's autoscaler ends."""
    await link("HDEL", keys.SCALED, host)
