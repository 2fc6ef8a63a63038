"""The survey: what the overview is made of, read in two trips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.domain.forecast import Speed
from corelane.metrics.series import Series, parse
from corelane.store import keys
from corelane.store.gauges import PRIORITIES, Work, count_open_items, read_work
from corelane.store.link.link import CommonLink, call, pairs, to_ms

#: Seconds of which the answered tokens are read: as many as are kept, see ``keys.rate``.
ANSWERED_SECONDS = 59

#: Owners of a priority, and jobs of a line, that are looked at: some milliseconds of Redis at most.
MOST_OWNERS, MOST_JOBS = 100, 200


@dataclass(frozen=True, slots=True)
class Survey:
    """The service at one moment. ``lanes`` are waiting tokens by version and priority, ``answered`` ones by second, the
    newest first. ``before`` are the sums at the history's last point, at ``before_ms``.
    """

    now_ms: int
    work: Work
    series: Series
    lanes: Mapping[tuple[str, str], int]
    answered: Sequence[int]
    #: Of the cores that have work.
    working_speeds: Sequence[Speed]
    before_ms: int | None
    before: Series

    @property
    def open_items(self) -> int:
        """Return the items that are not final."""
        return count_open_items(self.work, self.series)

    @property
    def waiting(self) -> Mapping[str, int]:
        """Return the tokens in lanes and files, by version."""
        return {version: tokens + self.work.unfed.get(version, 0) for version, tokens in self.work.waiting.items()}

    @property
    def tokens(self) -> int:
        """Return the tokens that are not answered, wherever they are."""
        return sum(self.waiting.values()) + sum(self.work.claimed.values())


async def read_survey(link: CommonLink) -> Survey:
    """Read a survey; it writes nothing."""
    time, lanes, rates, sums, sampled = await link.many(
        [
            ("TIME",),
            call("lane_tokens_by_priority", owners=MOST_OWNERS, jobs=MOST_JOBS),
            call("drain_rates", seconds=ANSWERED_SECONDS),
            ("HGETALL", keys.METRICS),
            ("GET", keys.SAMPLED),
        ]
    )
    answered, working = rates
    before: dict[str, Any] = orjson.loads(sampled) if sampled else {}
    return Survey(
        now_ms=to_ms(time),
        work=await read_work(link),
        series=parse({field.decode(): float(amount) for field, amount in pairs(sums)}),
        lanes={(version.decode(), PRIORITIES[int(rank)]): int(tokens) for version, rank, tokens in lanes},
        answered=[int(tokens) for tokens in answered],
        working_speeds=[Speed.decode(speed.decode()) for speed in working if speed is not None],
        before_ms=before.get("at_ms"),
        before=parse(before.get("sums", {})),
    )
