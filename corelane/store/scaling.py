"""Scaling as everyone reads it from Redis: how many cores there should be, and what hosts with an autoscaler tell.

A keeper works the figure out (``scaler.py``). Autoscalers, ``GET /v1/scaling`` and the gauge for other scalers read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from corelane.domain.scaling import HostRange, ScalingInfo
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: The figure is believed for this time, in milliseconds.
BELIEVED_MS = 15_000

#: A host that says nothing for this time runs no autoscaler any more, in milliseconds; later it is forgotten.
SILENT_MS, FORGET_MS = 10_000, 3_600_000


#: States in which a core serves, or is about to.
SERVING = frozenset({"starting", "waiting", "restarting", "idle", "busy"})


@dataclass(frozen=True, slots=True)
class ScaledHost:
    """A host with an autoscaler: the least and the most cores it may run, those that run, and those it has stopped."""

    name: str
    least: int
    most: int
    running: Sequence[str] = ()
    stopped: Sequence[str] = ()
    #: When it told so.
    at_ms: int = 0

    @property
    def range(self) -> HostRange:
        """Return the fewest and most cores of this host, for sharing cores among hosts."""
        return HostRange(self.name, self.least, self.most)


async def read_scaling(link: CommonLink) -> ScalingInfo | None:
    """Return what a keeper worked out a moment ago; None if none did."""
    text = await link("GET", keys.SCALING)
    return None if text is None else ScalingInfo.model_validate_json(text)


async def read_hosts(link: CommonLink) -> list[ScaledHost]:
    """Return the hosts with an autoscaler, by name; those long gone are forgotten."""
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
    """Return the cores that an autoscaler has stopped, by name, and when it told so."""
    return dict(sorted((core, host.at_ms) for host in await read_hosts(link) for core in host.stopped))


async def tell_host(link: CommonLink, host: ScaledHost) -> None:
    """Tell which cores of a host run; to be repeated, or the host is taken for one without an autoscaler."""
    words = {"least": host.least, "most": host.most, "running": host.running, "stopped": host.stopped}
    at_ms = await link.now_ms()
    await link("HSET", keys.SCALED, host.name, orjson.dumps({"at_ms": at_ms, **words}))


async def leave_scaling(link: CommonLink, host: str) -> None:
    """Tell that a host's autoscaler ends."""
    await link("HDEL", keys.SCALED, host)
