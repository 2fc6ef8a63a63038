"""What the items of a version cost lately, as its cores measured it (``lua/rates.lua``): read for forecasts."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.estimate import CostClass, CostRates, CostSums
from corelane.domain.prices import Price
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: Microseconds in a second.
US = 1_000_000

#: The field that has prices; the others are classes.
PRICES = b"prices"


@dataclass(frozen=True, slots=True)
class VersionCosts:
    """What the items of a version cost and at which prices, the longest window that its model reads, and the time of
    Redis.
    """

    rates: CostRates
    #: Core seconds of late by the price of the core; None for cores without one.
    prices: Mapping[Price | None, float]
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
        sums, fields = {}, dict(pairs(raw))
        for name, text in fields.items():
            if name == PRICES:
                continue
            items, estimated, tokens, windows, core_us = map(float, text.split())
            sums[CostClass.decode(name.decode())] = CostSums(items, estimated, tokens, windows, core_us / US)
        max_length = orjson.loads(summary).get("max_length") if summary else None
        prices = read_prices(fields.get(PRICES, b"").decode())
        return VersionCosts(CostRates(sums), prices, int(max_length or WINDOW_TOKENS), to_ms(time))


def read_prices(text: str) -> dict[Price | None, float]:
    """Read core seconds by price."""
    parts = text.split()
    sums: dict[Price | None, float] = {}
    for price, core_us in zip(parts[::2], parts[1::2], strict=True):
        decoded = Price.decode(price)
        sums[decoded] = sums.get(decoded, 0.0) + int(core_us) / US
    return sums
