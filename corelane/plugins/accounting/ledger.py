"""The usage of days, which ``accounting.lua`` writes: read it, and sum it by day, month, key and model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from corelane.domain.durations import DAY_S
from corelane.domain.prices import Price
from corelane.domain.usage import US, Group, HostUsage, UsageReport, UsageRow, Used, cost_of
from corelane.plugins.accounting import keys
from corelane.store.link.link import CommonLink, texts

#: Stands for the version of a job that was deleted before the last of its usage arrived.
NO_VERSION = "-"

#: Milliseconds in a second.
MS = 1000

#: Days read in one round trip.
DAYS_AT_ONCE = 31


@dataclass(frozen=True, slots=True)
class DayUsage:
    """A stored row: the work of an owner for a version on a day, at one price. ``model`` is None if it is not known."""

    day: int
    owner: str
    model: str | None
    used: Used


@dataclass(slots=True)
class Ledger:
    """The stored usage of some days. ``up_s`` and ``busy_s`` are the cores' own seconds, by price."""

    rows: list[DayUsage] = field(default_factory=list)
    lost: list[Used] = field(default_factory=list)
    up_s: dict[Price | None, float] = field(default_factory=dict)
    busy_s: dict[Price | None, float] = field(default_factory=dict)


def parse_day(day: int, raw: Sequence[Any], ledger: Ledger, owner: str | None) -> None:
    """Add the stored usage of a day to a ledger; with an owner, only that owner's rows."""
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
    """Read the usage from day ``first`` to day ``last``, both included, of an owner or of all."""
    ledger = Ledger()
    for begin in range(first, last + 1, DAYS_AT_ONCE):
        days = range(begin, min(begin + DAYS_AT_ONCE, last + 1))
        replies = await link.many([("HGETALL", keys.usage(day)) for day in days])
        for day, raw in zip(days, replies, strict=True):
            parse_day(day, raw, ledger, owner)
    return ledger


def day_number(day: date) -> int:
    """Return the number of days since 1970, by which a day is stored."""
    return (day - date(1970, 1, 1)).days


def day_text(number: int) -> str:
    """Return a day's number in the form 2026-11-22."""
    return datetime.fromtimestamp(number * DAY_S, UTC).date().isoformat()


def report(ledger: Ledger, first: int, last: int, group_by: Sequence[Group], *, whole: bool) -> UsageReport:
    """Return the usage of the rows by group; if ``whole``, of all owners, with lost work and the cores' own time."""
    groups: dict[tuple[str | None, ...], Used] = {}
    for row in ledger.rows:
        names = tuple(_name(row, group) for group in group_by)
        for currency, used in _by_currency([row.used]):
            groups.setdefault((*names, currency), Used()).add(used)
    ordered = sorted(groups.items(), key=lambda each: tuple(name or "" for name in each[0]))
    return UsageReport(
        from_=day_text(first),
        to=day_text(last),
        group_by=list(group_by),
        data=[_row(used, dict(zip(group_by, names, strict=False))) for names, used in ordered],
        total=_summed(row.used for row in ledger.rows),
        lost=_summed(ledger.lost) if whole else None,
        host=_host(ledger) if whole else None,
    )


def _name(row: DayUsage, group: Group) -> str | None:
    if group == "day":
        return day_text(row.day)
    if group == "month":
        return day_text(row.day)[:7]
    return row.owner if group == "key" else row.model


def _row(used: Used, names: Mapping[str, str | None]) -> UsageRow:
    return UsageRow(**used.shown(), **names)


def _summed(parts: Iterable[Used]) -> list[UsageRow]:
    return [_row(used, {}) for _, used in _by_currency(parts)]


def _by_currency(parts: Iterable[Used]) -> list[tuple[str, Used]]:
    """Return sums by currency. Sums of cores without a price are separate, as they have no cost."""
    sums: dict[str, Used] = {}
    for part in parts:
        for place, (price, core_us) in enumerate(part.core_us.items()):
            # Items, windows and tokens are not stored by price: they are counted in the first row.
            counts = (part.items, part.windows, part.tokens) if place == 0 else (0, 0, 0)
            sums.setdefault("" if price is None else price.currency, Used()).add(Used(*counts, {price: core_us}))
    return sorted(sums.items())


def _host(ledger: Ledger) -> HostUsage:
    currencies = sorted({price.currency for price in ledger.up_s if price is not None})
    costs = [
        cost_of(
            {price: up_s for price, up_s in ledger.up_s.items() if price is not None and price.currency == currency}
        )
        for currency in currencies
    ]
    return HostUsage(
        up_s=round(sum(ledger.up_s.values()), 3),
        busy_s=round(sum(ledger.busy_s.values()), 6),
        cost=[cost for cost in costs if cost is not None],
    )
