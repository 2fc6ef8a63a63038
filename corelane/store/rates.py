"""What the items of a version cost lately, as its cores measured it (``lua/rates.lua``): read for forecasts."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import orjson

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.estimate import CostClass, CostRates, CostSums
from corelane.domain.prices import Price
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: Microseconds in a second.
US = 1_000_000

#: The fields that have prices, and the core microseconds of all work; the others are classes.
PRICES, DONE = b"prices", b"done"

#: What is left of recent sums after other work, for each core: as ``LASTING_RECENT_US`` of the Lua library, in seconds.
LASTING_RECENT_S = 1.0


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
        raw, cores, summary, time = await self._link.many(
            [
                ("HGETALL", keys.costs(version)),
                ("ZCARD", keys.holders(version)),
                ("HGET", keys.MODELS, version),
                ("TIME",),
            ]
        )
        fields = dict(pairs(raw))
        max_length = orjson.loads(summary).get("max_length") if summary else None
        prices = read_prices(fields.get(PRICES, b"").decode())
        return VersionCosts(read_rates(fields, max(1, cores)), prices, int(max_length or WINDOW_TOKENS), to_ms(time))


def read_rates(fields: Mapping[bytes, bytes], cores: int) -> CostRates:
    """Read the sums of all classes; those that this version of Corelane does not know are left out."""
    done_us = float(fields.get(DONE, b"0"))
    sums, recent = {}, {}
    for name, text in fields.items():
        if name in (PRICES, DONE):
            continue
        with suppress(ValueError):
            its_class = CostClass.decode(name.decode())
            items, estimated, tokens, windows, core_us, at_us, *last = map(float, text.split())
            sums[its_class] = CostSums(items, estimated, tokens, windows, core_us / US)
            left = math.exp((at_us - done_us) / US / LASTING_RECENT_S / cores)
            last_items, last_tokens, last_us = last
            recent[its_class] = CostSums(items=left * last_items, tokens=left * last_tokens, core_s=left * last_us / US)
    return CostRates(sums, recent)


def read_prices(text: str) -> dict[Price | None, float]:
    """Read core seconds by price."""
    parts = text.split()
    sums: dict[Price | None, float] = {}
    for price, core_us in zip(parts[::2], parts[1::2], strict=True):
        decoded = Price.decode(price)
        sums[decoded] = sums.get(decoded, 0.0) + int(core_us) / US
    return sums
