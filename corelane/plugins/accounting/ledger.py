"""The usage of days, which ``accounting.lua`` writes: read it, and sum it by day, month, key and model."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from corelane.domain.overview import DAY_S
from corelane.domain.usage import Group, UsageReport, UsageRow, Used
from corelane.plugins.accounting import keys
from corelane.store.link.link import CommonLink, texts

#: Stands for the version of a job that was deleted before the last of its usage arrived.
NO_VERSION = "-"

#: Days read in one round trip.
DAYS_AT_ONCE = 31


@dataclass(frozen=True, slots=True)
class DayUsage:
    """A stored row: the work of an owner for a version on a day. ``model`` is None if it is not known."""

    day: int
    owner: str
    model: str | None
    used: Used


async def read_rows(link: CommonLink, first: int, last: int, owner: str | None = None) -> list[DayUsage]:
    """Read the usage from day ``first`` to day ``last``, both included, of an owner or of all."""
    rows = []
    for begin in range(first, last + 1, DAYS_AT_ONCE):
        days = range(begin, min(begin + DAYS_AT_ONCE, last + 1))
        replies = await link.many([("HGETALL", keys.usage(day)) for day in days])
        for day, raw in zip(days, replies, strict=True):
            for name, text in texts(raw).items():
                its_owner, _, version = name.partition("|")
                if owner in (None, its_owner):
                    model = None if version == NO_VERSION else version
                    rows.append(DayUsage(day, its_owner, model, Used.decode(text)))
    return rows


def day_number(day: date) -> int:
    """Return the number of days since 1970, by which a day is stored."""
    return (day - date(1970, 1, 1)).days


def day_text(number: int) -> str:
    """Return a day's number in the form 2026-11-22."""
    return datetime.fromtimestamp(number * DAY_S, UTC).date().isoformat()


def report(rows: Sequence[DayUsage], first: int, last: int, group_by: Sequence[Group]) -> UsageReport:
    """Return the usage of rows by group."""
    groups: dict[tuple[str | None, ...], Used] = {}
    total = Used()
    for row in rows:
        groups.setdefault(tuple(_name(row, group) for group in group_by), Used()).add(row.used)
        total.add(row.used)
    ordered = sorted(groups.items(), key=lambda each: tuple(name or "" for name in each[0]))
    return UsageReport(
        from_=day_text(first),
        to=day_text(last),
        group_by=list(group_by),
        data=[UsageRow(**used.shown(), **dict(zip(group_by, names, strict=True))) for names, used in ordered],
        total=UsageRow(**total.shown()),
    )


def _name(row: DayUsage, group: Group) -> str | None:
    if group == "day":
        return day_text(row.day)
    if group == "month":
        return day_text(row.day)[:7]
    return row.owner if group == "key" else row.model
