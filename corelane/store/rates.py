"""What the items of a version cost lately, as its cores measured it (``lua/rates.lua``): read for forecasts."""

from dataclasses import dataclass

import orjson

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.estimate import CostClass, CostRates, CostSums
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: Microseconds in a second.
US = 1_000_000


@dataclass(frozen=True, slots=True)
class VersionCosts:
    """What the items of a version cost, the longest window that its model reads, and the time of Redis."""

    rates: CostRates
    max_length: int
    now_ms: int


class RateStore:
    """The costs of versions in Redis."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def read(self, version: str) -> VersionCosts:
        """Return what is known of a version, in one trip."""
        commands = [("HGETALL", keys.costs(version)), ("HGET", keys.MODELS, version), ("TIME",)]
        raw, summary, time = await self._link.many(commands)
        sums = {}
        for name, text in pairs(raw):
            items, estimated, tokens, windows, core_us = map(float, text.split())
            sums[CostClass.decode(name.decode())] = CostSums(items, estimated, tokens, windows, core_us / US)
        max_length = orjson.loads(summary).get("max_length") if summary else None
        return VersionCosts(CostRates(sums), int(max_length or WINDOW_TOKENS), to_ms(time))
