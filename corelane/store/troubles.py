"""What is wrong with the service, read from Redis: for the overview, ``/readyz`` and ``corelane doctor``."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import redis.exceptions

from corelane.domain.troubles import (
    CoreSigns,
    Trouble,
    core_troubles,
    delivery_troubles,
    keeper_troubles,
    memory_troubles,
    overdue_troubles,
)
from corelane.store import keys
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.link.link import CommonLink, pairs, texts
from corelane.store.overdue import CARRIERS, only_overdue, read_waits
from corelane.store.scaling import read_stopped

#: What a `serve` says about its parts is believed for this time, in milliseconds. It says it every three seconds.
BELIEVED_MS = 20_000

#: What a `serve` told is forgotten after an hour, in milliseconds.
FORGET_TOLD_MS = 3_600_000


class PartReport:
    """Tells what a `serve` finds wrong with its parts. ``serve`` names it."""

    def __init__(self, link: CommonLink, serve: str) -> None:
        self._link = link
        self._serve = serve

    async def tell(self, troubles: Mapping[str, str]) -> None:
        """Tell what is wrong now; nothing takes back what was told before."""
        pairs_of = [[part, text] for part, text in troubles.items()]
        await self._link.run("tell_parts", serve=self._serve, troubles=pairs_of, forget_ms=FORGET_TOLD_MS)


async def read_part_troubles(link: CommonLink) -> list[Trouble]:
    """Return the parts that do not stay up, as the `serve` of each host told a moment ago."""
    told = await link("HGETALL", keys.PARTS)
    if not told:
        return []
    now_ms, found = await link.now_ms(), list[Trouble]()
    for serve, text in pairs(told):
        words = orjson.loads(text)
        if now_ms - words["at_ms"] < BELIEVED_MS:
            host = serve.decode().partition("#")[0]
            found += [
                Trouble(f"{part} on {host}", f"{what}; see the log of `serve`") for part, what in words["troubles"]
            ]
    return found


async def read_cores(link: CommonLink) -> list[dict[str, Any]]:
    """Return the heartbeats of the cores, lost ones too, but none that left as it was asked to.

    A core that leaves no longer counts among those that ask for work; one that was lost does.
    """
    cores, claimed, stopped = await Fleet(link).cores(), await link("HKEYS", keys.CLAIMED), await read_stopped(link)
    return [
        core for core in cores if "state" in core or (core["core"].encode() in claimed and core["core"] not in stopped)
    ]


async def read_troubles(link: CommonLink, cores: Sequence[Mapping[str, Any]]) -> list[Trouble]:
    """Return all that is wrong, except for versions that no core holds; ``cores`` are those of ``read_cores``."""
    rounds, now_ms = texts(await link("HGETALL", keys.ROUNDS)), await link.now_ms()
    ages = {loop: max(0, now_ms - int(at)) / 1000 for loop, at in rounds.items()}
    _, _, dead, circuits = await DeliveryLog(link).counts()
    return [
        *core_troubles([_signs(core, now_ms) for core in cores]),
        *await read_part_troubles(link),
        *keeper_troubles(ages),
        *overdue_troubles(only_overdue(await read_waits(link)), CARRIERS),
        *delivery_troubles(dead, circuits),
        *memory_troubles(*await _memory(link)),
    ]


async def _memory(link: CommonLink) -> tuple[int, int]:
    """Return the memory that Redis uses, and its limit; 0 for what an access list does not let us know."""
    try:
        info = await link("INFO", "memory")
    except redis.exceptions.ResponseError:
        return 0, 0
    found = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    return int(found.get(b"used_memory", 0)), int(found.get(b"maxmemory", 0))


async def find_troubles(link: CommonLink) -> list[Trouble]:
    """Return all that is wrong; nothing where no core has ever been."""
    cores = await read_cores(link)
    return await read_troubles(link, cores) if cores else await read_part_troubles(link)


def _signs(core: Mapping[str, Any], now_ms: int) -> CoreSigns:
    silent_s = max(0, now_ms - int(core["beat_ms"])) / 1000
    return CoreSigns(core["core"], core.get("state", "lost"), orjson.loads(core.get("reasons", "[]")), silent_s)
