"""The usage of days in Redis: how it is read. ``accounting.lua`` writes it."""

from collections.abc import Sequence
from typing import Any

from corelane.domain.prices import Price
from corelane.domain.usage import US, Used
from corelane.plugins.accounting.report import DayUsage, Ledger
from corelane.store import keys
from corelane.store.link.link import CommonLink, texts

#: The version of a job that was deleted before the last of its usage came.
NO_VERSION = "-"

#: Milliseconds in a second.
MS = 1000

#: Days read in one trip.
DAYS_AT_ONCE = 31


def parse_day(day: int, raw: Sequence[Any], ledger: Ledger, owner: str | None) -> None:
    """Add what is stored of a day to a ledger; of an owner, those rows alone."""
    for name, text in texts(raw).items():
        kind, *rest = name.split("|")
        price = Price.decode(rest[-1])
        if not kind.startswith("#"):
            if owner in (None, kind):
                model = None if rest[0] == NO_VERSION else rest[0]
                ledger.rows.append(DayUsage(day, kind, model, _parse_row(text, price)))
        elif kind == "#lost":
            ledger.lost.append(_parse_row(text, price))
        elif kind == "#up":
            ledger.up_s[price] = ledger.up_s.get(price, 0.0) + int(text) / MS
        elif kind == "#busy":
            ledger.busy_s[price] = ledger.busy_s.get(price, 0.0) + int(text) / US


def _parse_row(text: str, price: Price | None) -> Used:
    items, windows, tokens, core_us = map(int, text.split(" "))
    return Used(items, windows, tokens, {price: core_us})


async def read_ledger(link: CommonLink, first: int, last: int, owner: str | None = None) -> Ledger:
    """Read the usage of the days from one to another, both included; of an owner, or of all."""
    ledger = Ledger()
    for begin in range(first, last + 1, DAYS_AT_ONCE):
        days = range(begin, min(begin + DAYS_AT_ONCE, last + 1))
        replies = await link.many([("HGETALL", keys.usage(day)) for day in days])
        for day, raw in zip(days, replies, strict=True):
            parse_day(day, raw, ledger, owner)
    return ledger
