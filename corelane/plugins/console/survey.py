"""The survey: the data of the overview, read in two round trips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.domain.jobs import Priority
from corelane.domain.overview import OwnerWork
from corelane.domain.pauses import Pauses
from corelane.metrics.series import Series, parse
from corelane.plugins.console import keys as own_keys
from corelane.store import keys
from corelane.store.gauges import PRIORITIES, Work, count_open_items, read_work
from corelane.store.link.link import CommonLink, call, pairs, texts, to_ms

#: Seconds for which answered tokens are read: all that are stored, see ``keys.rate``.
ANSWERED_SECONDS = 59

#: Most lists read for each priority to divide the waiting tokens by priority: at most two milliseconds of Redis.
MOST_LISTS = 200

#: Most owners that are listed, and most jobs of an owner whose items are counted.
MOST_OWNERS, COUNTED_OWN_JOBS = 6, 200


@dataclass(frozen=True, slots=True)
class Survey:
    """The service at one moment. ``seen`` has the waiting tokens that were looked at, by version and priority.
    ``answered`` has tokens by second, newest first. ``before`` has the sums at the history's last point.
    """

    now_ms: int
    work: Work
    series: Series
    seen: Mapping[tuple[str, str], int]
    answered: Sequence[int]
    #: Speeds of the cores that have work.
    working_speeds: Sequence[float]
    pauses: Pauses
    #: The owners with the most work.
    owners: Sequence[OwnerWork]
    before_ms: int | None
    before: Series

    @property
    def open_items(self) -> int:
        """Return the items that are not final."""
        return count_open_items(self.series)

    @property
    def lanes(self) -> Mapping[tuple[str, str], int]:
        """Return the waiting tokens by version and priority. A version's tokens are divided among priorities
        like its ``seen`` tokens.
        """
        found = {}
        for version, tokens in self.work.outstanding.items():
            seen = {priority: count for (own, priority), count in self.seen.items() if own == version}
            total = sum(seen.values())
            found.update({(version, priority): tokens * count // total for priority, count in seen.items() if total})
            if tokens and not total:
                found[version, Priority.NORMAL.value] = tokens
        return {lane: tokens for lane, tokens in found.items() if tokens}

    @property
    def tokens(self) -> int:
        """Return the number of tokens that are not answered, in lanes, in files and on cores."""
        return sum(self.work.outstanding.values()) + sum(self.work.claimed.values())


async def read_survey(link: CommonLink) -> Survey:
    """Read a survey; it writes nothing."""
    time, lanes, rates, sums, sampled, paused, owners = await link.many(
        [
            ("TIME",),
            call("lane_tokens_by_priority", lists=MOST_LISTS),
            call("drain_rates", seconds=ANSWERED_SECONDS),
            ("HGETALL", keys.METRICS),
            ("GET", own_keys.SAMPLED),
            ("HGETALL", keys.PAUSED),
            call("owners_with_work", most=MOST_OWNERS, jobs=COUNTED_OWN_JOBS),
        ]
    )
    answered, working = rates
    before: dict[str, Any] = orjson.loads(sampled) if sampled else {}
    return Survey(
        now_ms=to_ms(time),
        work=await read_work(link),
        series=parse({field.decode(): float(amount) for field, amount in pairs(sums)}),
        seen={(version.decode(), PRIORITIES[int(rank)]): int(tokens) for version, rank, tokens in lanes},
        answered=[int(tokens) for tokens in answered],
        working_speeds=[float(speed) for speed in working if speed is not None],
        pauses=Pauses.decode(texts(paused)),
        owners=[
            OwnerWork(
                owner=owner.decode(),
                tokens=int(tokens),
                jobs=int(jobs),
                items=None if items < 0 else int(items),
                oldest_wait_s=int(age_ms) / 1000,
            )
            for owner, tokens, jobs, items, age_ms in owners
        ],
        before_ms=before.get("at_ms"),
        before=parse(before.get("sums", {})),
    )
