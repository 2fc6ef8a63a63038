"""The history of the service: one point every ten seconds for six hours, one every five minutes for a week; and marks.

A keeper makes the points from the sums and gauges that every process can read. Both rings and the marks are streams in
Redis, so the history survives restarts, and any process can show it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from corelane.domain.health_issues import HealthIssue
from corelane.metrics.conditions import LOOP_STANDS
from corelane.metrics.series import parse
from corelane.plugins.console import keys as own_keys
from corelane.plugins.console.points import Point, make_point, merge, only_sampled, thin
from corelane.store import keys
from corelane.store.fleet import Fleet
from corelane.store.gauges import count_open_items, read_work
from corelane.store.link.lease import Lease
from corelane.store.link.link import CommonLink, pairs
from corelane.store.metrics import read_sums

if TYPE_CHECKING:
    from workers.loops.loop import Loop, LoopTools

#: The fine ring: time between two of its points, in milliseconds, and how many there are: six hours.
FINE_MS, FINE = 10_000, 2160

#: The clocks of callers may be off by this, in milliseconds.
SLACK_MS = 60_000

#: The coarse ring: time between two of its points, in milliseconds, and how many there are: a week.
COARSE_MS, COARSE = 300_000, 2016

#: The sums of the last point are forgotten after this time, in seconds: a point stands for a day at most.
SAMPLED_TTL_S = 86_400

#: Time between two points, in seconds.
SAMPLE_S = FINE_MS / 1000

#: The right to take points. Another process gets it when the holder misses two.
SAMPLER = Lease(own_keys.SAMPLER, ttl_ms=25_000)


@dataclass(frozen=True, slots=True)
class Mark:
    """A change that was made to the service."""

    at_ms: int
    kind: str
    text: str


class History:
    """Reads the history."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def points(self, since_ms: int, most: int = 400) -> list[Point]:
        """Return points from a time on, oldest first. Of more than ``most``, each returned one stands for several."""
        now_ms = await self._link.now_ms()
        is_fine = since_ms >= now_ms - FINE * FINE_MS - SLACK_MS
        entries = await self._link("XRANGE", own_keys.history("fine" if is_fine else "coarse"), max(0, since_ms), "+")
        return thin([_parse_point(entry) for entry in entries], most)

    async def marks(self, since_ms: int) -> list[Mark]:
        """Return marks from a time on, oldest first."""
        entries = await self._link("XRANGE", keys.MARKS, max(0, since_ms), "+")
        found = []
        for entry, flat in entries:
            fields = {name.decode(): value.decode() for name, value in pairs(flat)}
            found.append(Mark(_time_of(entry), fields["kind"], fields["text"]))
        return found


class Sampler:
    """Takes the points, if no other process does."""

    def __init__(self, link: CommonLink, name: str) -> None:
        """``name`` is unique to this sampler."""
        self._link = link
        self._name = name

    async def sample(self) -> Point | None:
        """Take a point, and a coarse one if due; None without the lease, or the first time. Raises Unavailable."""
        if not (await self._link.many([SAMPLER.take(self._name)]))[0]:
            return None
        sums, work, cores = await read_sums(self._link), await read_work(self._link), await Fleet(self._link).cores()
        at_ms, before = await self._link.now_ms(), await self._link("GET", own_keys.SAMPLED)
        then = None if before is None else orjson.loads(before)
        kept = orjson.dumps({"at_ms": at_ms, "sums": only_sampled(sums)})
        commands: list[tuple[Any, ...]] = [
            ("SET", own_keys.SAMPLED, kept, "EX", SAMPLED_TTL_S),
            ("HSET", keys.ROUNDS, "history", at_ms),
        ]
        point = None
        if then is not None:
            now = parse(sums)
            busy = [float(core.get("busy", 0)) for core in cores if "state" in core]
            point = make_point(
                at_ms,
                then["at_ms"],
                parse(then["sums"]),
                now,
                backlog_s=await work.backlog_s(self._link),
                waiting_tokens=sum(work.outstanding.values()),
                open_items=count_open_items(now),
                busy=fmean(busy) if busy else None,
            )
            commands.append(_add("fine", FINE, point))
        await self._link.run("write", commands=commands)
        if point is not None:
            await self._coarsen(at_ms)
        return point

    async def _coarsen(self, at_ms: int) -> None:
        """Merge the fine points since the last coarse one, if a coarse one is due."""
        [last] = await self._link("XREVRANGE", own_keys.history("coarse"), "+", "-", "COUNT", 1) or [(b"0-0", [])]
        since_ms = _time_of(last[0])
        if at_ms // COARSE_MS == since_ms // COARSE_MS:
            return
        fine = await self._link("XRANGE", own_keys.history("fine"), max(since_ms + 1, at_ms - 2 * COARSE_MS), "+")
        point = merge([_parse_point(entry) for entry in fine])
        await self._link.run("write", commands=[_add("coarse", COARSE, point)])


def sampling(tools: "LoopTools") -> "Loop":
    """Make the keeper's loop that takes the points."""
    from corelane.store.link.blocking import Link
    from workers.loops.loop import Loop

    def begin() -> Callable[[], object]:
        link, name = Link(tools.settings.redis_url), uuid4().hex
        return lambda: link.read(lambda read: Sampler(read, name).sample())

    return Loop("history", begin, pause_s=SAMPLE_S, outage=tools.outage)


async def health_issues(link: CommonLink) -> list[HealthIssue]:
    """Return an issue if the keeper sweeps but takes no points."""
    now_ms, rounds = await link.now_ms(), await link("HMGET", keys.ROUNDS, "sweeps", "history")
    swept_s, taken_s = (0.0 if at is None else (now_ms - int(at)) / 1000 for at in rounds)
    if LOOP_STANDS.holds(taken_s) and not LOOP_STANDS.holds(swept_s):
        return [HealthIssue("keeper", f"took no point of the history for {taken_s:,.0f} s; see its log")]
    return []


def _add(ring: str, most: int, point: Point) -> tuple[Any, ...]:
    return ("XADD", own_keys.history(ring), "MAXLEN", "~", most, "*", "point", orjson.dumps(point.encode()))


def _parse_point(entry: tuple[bytes, list[bytes]]) -> Point:
    return Point.decode(orjson.loads(entry[1][1]))


def _time_of(entry: bytes) -> int:
    """Return the time in the id of a stream's entry."""
    return int(entry.partition(b"-")[0])
