"""The recent costs of a version's items, as its cores measured them (``lua/rates.lua``): read for forecasts."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson

from corelane.domain.dispatch import WINDOW_TOKENS
from corelane.domain.item_costs import CostClass, CostSums, RowCost
from corelane.domain.prices import Price
from corelane.store import keys
from corelane.store.link.link import CommonLink, pairs, to_ms

#: Microseconds in a second.
US = 1_000_000

#: The fields that are not classes: the price of the core that worked last, and the core microseconds of all work.
PRICE, DONE = b"price", b"done"

#: How fast recent sums fade with other work, for each core: ``LASTING_RECENT_US`` of the Lua library, in seconds.
LASTING_RECENT_S = 1.0


@dataclass(frozen=True, slots=True)
class VersionCosts:
    """The costs of a version's items, the prices of its cores, its longest window, and the time of Redis."""

    #: Sums over items that were read, by class. ``recent`` has those of the last moments: items, tokens and core
    #: seconds.
    sums: Mapping[CostClass, CostSums]
    recent: Mapping[CostClass, CostSums]
    #: Costs of the passes that were measured when the model was built or loaded.
    rows: Sequence[RowCost]
    #: Number of cores that hold the version, by price, which is None for cores without one. If no core is alive, the
    #: core that worked last.
    prices: Mapping[Price | None, int]
    max_length: int
    now_ms: int

    @property
    def whole(self) -> CostSums:
        """Return the sums over all classes."""
        return sum(self.sums.values(), CostSums())


class RateStore:
    """Reads the costs of versions from Redis."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def read(self, version: str) -> VersionCosts:
        """Return all that is known of a version's costs."""
        raw, held, summary, time = await self._link.many(
            [
                ("HGETALL", keys.costs(version)),
                ("ZRANGE", keys.holders(version), "0", "-1", "WITHSCORES"),
                ("HGET", keys.MODELS, version),
                ("TIME",),
            ]
        )
        fields, now_ms = dict(pairs(raw)), to_ms(time)
        living = [core.decode() for core, until_ms in pairs(held) if float(until_ms) >= now_ms]
        prices = await self._link.many([("HGET", keys.core(core), PRICE) for core in living]) if living else []
        told = [price.decode() for price in prices or [fields.get(PRICE)] if price is not None]
        model = orjson.loads(summary) if summary else {}
        # A clock that stood still during a pass gives no measurement.
        rows = [RowCost(row[0], row[1] / US, row[2] / US) for row in model.get("row_us", ()) if all(row)]
        return VersionCosts(
            *read_sums(fields, max(1, len(living))),
            rows,
            Counter(map(Price.decode, told)),
            int(model.get("max_length") or WINDOW_TOKENS),
            now_ms,
        )


def read_sums(fields: Mapping[bytes, bytes], cores: int) -> tuple[dict[CostClass, CostSums], dict[CostClass, CostSums]]:
    """Return the sums and the recent sums of all classes. Classes of newer releases are left out."""
    done_us = float(fields.get(DONE, b"0"))
    sums: dict[CostClass, CostSums] = {}
    recent: dict[CostClass, CostSums] = {}
    for name, text in fields.items():
        if name in (PRICE, DONE):
            continue
        with suppress(ValueError):
            its_class = CostClass.decode(name.decode())
            items, estimated, tokens, windows, core_us, at_us, *last = map(float, text.split())
            sums[its_class] = CostSums(items, estimated, tokens, windows, core_us / US)
            left = math.exp((at_us - done_us) / US / LASTING_RECENT_S / cores)
            last_items, last_tokens, last_us = last
            recent[its_class] = CostSums(items=left * last_items, tokens=left * last_tokens, core_s=left * last_us / US)
    return sums, recent
