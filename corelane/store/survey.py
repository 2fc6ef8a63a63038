"""The survey: what waits, what is claimed and what was answered of late, read for the overview in two trips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from corelane.domain.forecast import Speed
from corelane.store import keys
from corelane.store.link.link import CommonLink, call, pairs

#: Seconds of which the answered tokens are kept; see ``keys.rate``.
ANSWERED_SECONDS = 59

#: Owners of a priority, and jobs of a line, that are looked at: some milliseconds of Redis at most.
MOST_OWNERS, MOST_JOBS = 100, 200


@dataclass(frozen=True, slots=True)
class SurveyedLane:
    """What waits for a version at a priority: estimated tokens, and when the oldest job was created."""

    version: str
    priority: int
    tokens: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Survey:
    """Work at one moment: ``waiting`` by version, ``held`` by core.

    ``holders`` are the living cores of each version that something waits for, ``answered`` is by second, newest first.

    ``working_speeds`` are those of the cores that have work.
    """

    now_ms: int
    open_items: int
    lanes: Sequence[SurveyedLane]
    waiting: Mapping[str, int]
    holders: Mapping[str, Sequence[str]]
    held: Mapping[str, int]
    owed: int
    unfed: int
    speeds: Mapping[str, Speed]
    working_speeds: Sequence[Speed]
    answered: Sequence[int]

    @property
    def tokens(self) -> int:
        """Return the tokens that are not answered, wherever they are."""
        return self.owed + self.unfed


async def read_survey(link: CommonLink) -> Survey:
    """Read a survey; it writes nothing."""
    tables = (keys.WAITING, keys.HELD, keys.OWED, keys.UNFED, keys.SPEEDS)
    survey, rates, *replies = await link.many(
        [
            call("survey", owners=MOST_OWNERS, jobs=MOST_JOBS),
            call("drain_rates", seconds=ANSWERED_SECONDS),
            *(("HGETALL", key) for key in tables),
        ]
    )
    found = orjson.loads(survey)
    waiting, held, owed, unfed = ({name.decode(): int(count) for name, count in pairs(flat)} for flat in replies[:4])
    answered, working = rates
    now_ms = int(found["now_ms"])
    # Lua writes an empty list as an object.
    lanes = [SurveyedLane(**lane) for lane in found["lanes"] or ()]
    versions = sorted({*waiting, *(lane.version for lane in lanes)})
    commands = [("ZRANGEBYSCORE", keys.holders(version), now_ms, "+inf") for version in versions]
    holders = await link.many(commands) if commands else []
    return Survey(
        now_ms,
        int(found["open_items"]),
        lanes,
        waiting,
        {version: [core.decode() for core in cores] for version, cores in zip(versions, holders, strict=True)},
        held,
        sum(owed.values()),
        sum(unfed.values()),
        {core.decode(): Speed.decode(speed.decode()) for core, speed in pairs(replies[4])},
        [Speed.decode(speed.decode()) for speed in working if speed is not None],
        [int(tokens) for tokens in answered],
    )
