"""Health issues of the service, read from Redis and judged by the table of conditions: for the overview, ``/readyz``
and ``corelane doctor``.
"""

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import orjson

from corelane.domain import conditions as c
from corelane.domain.conditions import HealthIssue
from corelane.log import PassedOver
from corelane.plugin import installed
from corelane.store import keys
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.gauges import CARRIERS, Work, only_overdue, read_waits, read_work
from corelane.store.link.link import CommonLink, pairs, texts
from corelane.store.pauses import read_pauses
from corelane.store.plugin import StorePlugin
from corelane.store.redis_info import RedisState, read_redis

#: A `serve` reports about its parts every three seconds. A report is believed for this time, in milliseconds.
BELIEVED_MS = 20_000

#: Most hosts of webhooks that are named.
SHOWN_HOSTS = 5

#: The report of a `serve` is deleted after this time, in milliseconds: an hour.
FORGET_TOLD_MS = 3_600_000


class PartReport:
    """Reports what a `serve` finds wrong with its parts. ``serve`` is its name."""

    def __init__(self, link: CommonLink, serve: str) -> None:
        self._link = link
        self._serve = serve

    async def tell(self, issues: Mapping[str, str]) -> None:
        """Report what is wrong now, in place of the earlier report of this `serve`."""
        pairs_of = [[part, text] for part, text in issues.items()]
        await self._link.run("tell_parts", serve=self._serve, troubles=pairs_of, forget_ms=FORGET_TOLD_MS)


async def read_part_issues(link: CommonLink) -> list[HealthIssue]:
    """Return the parts that do not stay up, from the recent report of each host's `serve`."""
    told = await link("HGETALL", keys.PARTS)
    if not told:
        return []
    now_ms, found = await link.now_ms(), list[HealthIssue]()
    for serve, text in pairs(told):
        words = orjson.loads(text)
        if now_ms - words["at_ms"] < BELIEVED_MS:
            host = serve.decode().partition("#")[0]
            found += [
                HealthIssue(f"{part} on {host}", f"{what}; see the log of `serve`") for part, what in words["troubles"]
            ]
    return found


async def read_cores(link: CommonLink) -> list[dict[str, Any]]:
    """Return the heartbeats of all cores, lost ones too, except cores that left on request.

    A lost core is recognised because it is still listed among those that ask for work.
    """
    cores, claimed = await Fleet(link).cores(), await link("HKEYS", keys.CLAIMED)
    return [core for core in cores if "state" in core or core["core"].encode() in claimed]


async def read_issues(link: CommonLink, cores: Sequence[Mapping[str, Any]], work: Work) -> list[HealthIssue]:
    """Return all issues; ``cores`` come from ``read_cores``.

    If Redis takes no writes, heartbeats and the rounds of loops stop as well. So only that issue is returned.
    """
    state = await read_redis(link)
    if not state.can_write:
        return [c.REDIS_DISK.issue("redis")]
    rounds, now_ms = texts(await link("HGETALL", keys.ROUNDS)), await link.now_ms()
    of_plugins: list[HealthIssue] = []
    for plugin in installed(StorePlugin):
        with PassedOver(plugin.name, "health_issues"):
            of_plugins += await plugin.health_issues(link)
    return [
        *[issue async for issue in _unheld(link, work)],
        *_core_issues(cores, now_ms),
        *await read_part_issues(link),
        *_keeper_issues(rounds, cores),
        *(
            c.WORK_OVERDUE.issue(what, waited_s=waited_s, carrier=CARRIERS[what])
            for what, waited_s in only_overdue(await read_waits(link)).items()
        ),
        *await _delivery_issues(link, now_ms),
        *of_plugins,
        *_memory_issues(state),
        *(c.PAUSED.issue(pause.subject, words=pause.words) for pause in (await read_pauses(link)).all),
    ]


async def find_issues(link: CommonLink) -> list[HealthIssue]:
    """Return all issues; if there has never been a core, only those of Redis and of the parts of a `serve`."""
    if cores := await read_cores(link):
        return await read_issues(link, cores, await read_work(link))
    state = await read_redis(link)
    of_redis = _memory_issues(state) if state.can_write else [c.REDIS_DISK.issue("redis")]
    return [*of_redis, *await read_part_issues(link)]


async def _unheld(link: CommonLink, work: Work) -> AsyncIterator[HealthIssue]:
    """Yield the versions that work waits for and that no living core holds."""
    for version, tokens in work.movable.items():
        is_unheld = tokens and not work.holders.get(version)
        if is_unheld and (outlook := await Fleet(link).outlook(version)) is not None:
            yield c.NOT_HELD.issue(version, reason=outlook.reason)


def _core_issues(cores: Sequence[Mapping[str, Any]], now_ms: int) -> Iterator[HealthIssue]:
    """Judge cores by their states, and by the models that they could not load."""
    is_alone = not any("state" in core for core in cores)
    heirs = "its work waits, as no other core lives" if is_alone else "its work went to other cores"
    for core in cores:
        name, reasons = core["core"], orjson.loads(core.get("reasons", "[]"))
        why = f": {'; '.join(reasons)}" if reasons else ""
        if "state" not in core:
            yield c.CORE_LOST.issue(name, silent_s=max(0, now_ms - int(core["beat_ms"])) / 1000, heirs=heirs)
        elif (condition := c.CORE_STATES.get(core["state"])) is not None:
            yield condition.issue(name, why=why)
        else:
            for model in orjson.loads(core.get("models", "[]")):
                if model["state"] == "failed":
                    reason = model.get("reason") or "see its log"
                    yield c.MODEL_FAILS.issue(name, version=model["version"], reason=reason)


def _keeper_issues(rounds: Mapping[str, str], cores: Sequence[Mapping[str, Any]]) -> list[HealthIssue]:
    """Judge whether a keeper has ever run. It may start after the cores."""
    lived_s = max((float(core.get("lived_s", math.inf)) for core in cores), default=math.inf)
    if "sweeps" in rounds or not c.LOOP_STANDS.holds(lived_s):
        return []
    told = "has never run, so lost work is not returned; start `corelane keeper`"
    return [c.LOOP_STANDS.issue("keeper", told=told)]


async def _delivery_issues(link: CommonLink, now_ms: int) -> list[HealthIssue]:
    """Judge webhooks that were given up, and hosts that rest."""
    _, _, dead, _ = await DeliveryLog(link).counts()
    found = []
    if dead:
        found.append(c.DEAD_LETTERS.issue("webhooks", webhooks=f"{dead:,} webhook" + ("" if dead == 1 else "s")))
    for host, at_ms in await DeliveryLog(link).resting(SHOWN_HOSTS):
        rest_s = (at_ms - now_ms) / 1000
        when = f"in {rest_s:,.0f} s" if rest_s >= 1 else "now"
        found.append(c.CIRCUIT_OPEN.issue("webhooks", host=host, when=when))
    return found


def _memory_issues(state: RedisState) -> list[HealthIssue]:
    """Judge the memory of Redis."""
    if not c.REDIS_MEMORY.holds(state.memory_share):
        return []
    used, reserved = state.used_bytes / state.limit_bytes, state.reserved_bytes / state.limit_bytes
    results = f", and results of accepted items will take {reserved:.0%}" if reserved > 0.01 else ""
    refused = "new jobs are refused" if state.is_full else f"from {c.MEMORY_SHARE:.0%} on new jobs are refused"
    return [c.REDIS_MEMORY.issue("redis", used=used, results=results, refused=refused)]
